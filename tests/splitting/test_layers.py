"""What is known of a layer: its blocks, its groups."""

import pytest
import torch
from torch import Tensor, nn

import rvsm
from rvsm.groups import GROUPS
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import select
from rvsm.splitting.units import Unit


def strided(shape: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    """Return a dense tensor whose memory runs through the dimensions in another order."""
    memory = torch.arange(float(torch.Size(shape).numel())).view([shape[i] for i in order])
    return memory.permute([order.index(i) for i in range(len(shape))])


LARGE = (300, 300, 3, 3)
LAYOUTS = {
    "contiguous": torch.zeros(LARGE),
    "channels_last": torch.zeros(LARGE).to(memory_format=torch.channels_last),
    "transposed": torch.zeros(700, 600).T,
    "permuted": strided((60, 50, 20, 10), (2, 0, 3, 1)),
    "one_channel": torch.zeros(9, 1, 3, 3).to(memory_format=torch.channels_last),
    "scalar": torch.zeros(()),
    "expanded": torch.zeros(5, 1).expand(5, 7),
    "sliced": torch.zeros(10, 10)[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_cover_each_weight_exactly_once(layout: str) -> None:
    w = LAYOUTS[layout]
    blocks = [block for (block,) in Layer("w", w).blocks(w)]
    covered = [
        block.data_ptr() + block.element_size() * offset for block in blocks for offset in reached(block).tolist()
    ]
    expected = [w.data_ptr() + w.element_size() * offset for offset in reached(w).tolist()]
    assert sorted(covered) == sorted(expected)
    if layout in ("expanded", "sliced"):
        assert len(blocks) == 1
        assert blocks[0] is w
    else:
        assert max(block.numel() for block in blocks) <= 1 << 18
        assert len(blocks) == -(-w.numel() // (1 << 18))


def reached(w: Tensor) -> Tensor:
    """Return the offset in memory of each entry."""
    offsets = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(w.shape, w.stride(), strict=True):
        offsets = offsets.unsqueeze(-1) + stride * torch.arange(size)
    return offsets.flatten()


def test_grouped_weights_are_not_cut_into_blocks() -> None:
    w = torch.zeros(LARGE)
    assert [block is w for (block,) in Layer("w", w, groups=rvsm.Filter()).blocks(w)] == [True]


def as_convolution(w: Tensor, groups: int) -> Tensor:
    """Turn [in, out/g, *kernel] of a transposed convolution into [out, in/g, *kernel], entry by entry."""
    inputs, per_group = w.shape[0], w.shape[1]
    turned = w.new_full((per_group * groups, inputs // groups, *w.shape[2:]), torch.nan)
    for i in range(inputs):
        group = i // (inputs // groups)
        for o in range(per_group):
            turned[group * per_group + o, i % (inputs // groups)] = w[i, o]
    return turned


@pytest.mark.parametrize("grouping", GROUPS)
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("convolution", [nn.ConvTranspose1d, nn.ConvTranspose2d])
def test_transposed_convolutions_are_grouped_as_the_equivalent_convolution(convolution, groups, grouping) -> None:
    layer = select(nn.Sequential(convolution(12, 6, 3, groups=groups)), None, None)[0]
    layer.groups = GROUPS[grouping]()
    w = layer.w.detach()
    plain = Layer("plain", as_convolution(w, groups), groups=GROUPS[grouping](), convolution_groups=groups)
    magnitudes = plain.magnitudes(plain.w)
    assert int((layer.group_sizes() * torch.ones_like(magnitudes)).sum()) == w.numel()
    # The order of summation differs, and single weights keep the order of the transposed convolution.
    ours = as_convolution(layer.magnitudes(w), groups) if grouping == "element" else layer.magnitudes(w)
    torch.testing.assert_close(ours, magnitudes)

    cut = float(magnitudes.flatten().sort().values[magnitudes.numel() // 2 - 1 :][:2].mean())
    spread = layer.spread(layer.magnitudes(w) < cut)
    assert spread.shape == w.shape
    assert torch.equal(as_convolution(spread.float(), groups), plain.spread(magnitudes < cut).float())

    layer.penalty = plain.penalty = rvsm.L1(lam=float(magnitudes.median()))
    torch.testing.assert_close(as_convolution(layer.prox(w, 1.0), groups), plain.prox(plain.w, 1.0))
    assert Unit((layer,)).penalty_value([w]) == pytest.approx(Unit((plain,)).penalty_value([plain.w]))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_filter_of_a_transposed_convolution_is_one_output_channel(groups: int) -> None:
    model = nn.ConvTranspose2d(4, 6, 3, groups=groups, bias=False)
    layer = select(model, None, None)[0]
    layer.groups = rvsm.Filter()
    for channel in range(6):
        gone = torch.zeros(6, 1, 1, 1, dtype=torch.bool)
        gone[channel] = True
        with torch.no_grad():
            kept = model.weight.clone()
            model.weight.masked_fill_(layer.spread(gone), 0)
            silent = model(torch.randn(2, 4, 5, 5)).abs().amax(dim=(0, 2, 3)) == 0
            model.weight.copy_(kept)
        assert silent.nonzero().flatten().tolist() == [channel]


@pytest.mark.parametrize("layout", ["channels_last", "transposed"])
def test_spread_keeps_the_memory_order_of_the_weights(layout: str) -> None:
    w = LAYOUTS[layout]
    layer = Layer("w", w, groups=rvsm.Filter())
    assert layer.spread(layer.magnitudes(w) > 0).stride() == w.stride()


def test_groups_that_do_not_fit_a_shape_are_refused_at_construction() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        rvsm.RVSM(model, rvsm.L0(lam=1e-3), beta=1.0, groups="filter", include=["0.bias"])


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("convolution", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_channel_of_a_grouped_convolution_is_what_reads_one_input_channel(convolution, groups: int) -> None:
    model = convolution(8, 8, 3, groups=groups, bias=False)
    layer = select(model, None, None)[0]
    layer.groups = rvsm.Channel()
    assert layer.magnitudes(model.weight.detach()).numel() == 8
    for channel in range(8):
        gone = torch.zeros(layer.magnitudes(model.weight.detach()).shape, dtype=torch.bool)
        gone.view(-1)[channel] = True
        with torch.no_grad():
            kept = model.weight.clone()
            x = torch.zeros(1, 8, 5, 5)
            x[:, channel] = 1
            model.weight.masked_fill_(layer.spread(gone), 0)
            assert not model(x).any(), "the channel is not read any more"
            x = 1 - x
            blind = model(x)
            model.weight.copy_(kept)
            torch.testing.assert_close(blind, model(x))


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(4, 3),
        nn.Conv2d(4, 6, 3, groups=2),
        nn.ConvTranspose2d(4, 6, 3),
        nn.ConvTranspose1d(4, 6, 3, groups=2),
    ],
    ids=str,
)
def test_emptied_outputs_are_those_that_depend_on_no_input(module: nn.Module) -> None:
    layer = select(module, None, None)[0]
    torch.manual_seed(0)
    outputs = torch.arange(layer.outputs)
    with torch.no_grad():
        module.bias.zero_()
        w = layer.parameter
        if layer.transposed:  # [in, out/g, …]: the second output of the last group
            w.view(layer.convolution_groups, -1, *w.shape[1:])[-1, :, 1] = 0
        else:
            w[-1] = 0
        x = torch.randn(2, 4, *[5] * (w.dim() - 2))
        dead = [int(o) for o in outputs if (module(x).select(1, int(o)) == 0).all()]
    emptied = layer.emptied_outputs(w.detach() == 0).expand_as(w)
    assert len(dead) == 1
    assert int(emptied.sum()) == w.numel() // layer.outputs
    assert (w[emptied] == 0).all()
