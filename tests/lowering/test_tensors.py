"""Networks of tensors with any number of dimensions: all of it native, equal to PyTorch, and saved."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import rvsm.runtime
from rvsm.lowering import MixedProgram, compile
from rvsm.lowering.views import View
from rvsm.runtime import Program

BATCHES = (1, 3, 17)


class Results(nn.Module):
    """Some layers, and results that are computed of them, each by one function of the network and its inputs."""

    def __init__(self, functions: dict[str, Callable[..., Tensor]], **layers: nn.Module) -> None:
        super().__init__()
        self.functions = functions
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {name: function(self, x) for name, function in self.functions.items()}


def heads(x: Tensor) -> Tensor:
    return x.view(x.shape[0], 7, 2, 8).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], 7, 16)


def by_letters(m: Any, x: Tensor) -> Tensor:
    q, k, v = (layer(x).view(x.shape[0], 7, 2, 8) for layer in (m.q, m.k, m.v))
    weights = torch.einsum("bqhd,bkhd->bhqk", q, k).div(8**0.5).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape[0], 7, 16)


def by_products(m: Any, x: Tensor) -> Tensor:
    q, k, v = (heads(layer(x)) for layer in (m.q, m.k, m.v))
    return joined((q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v)


def folded(m: Any, x: Tensor) -> Tensor:
    q, k = (heads(layer(x)).reshape(-1, 7, 8) for layer in (m.q, m.k))
    return torch.bmm(q, k.transpose(1, 2)).view(x.shape[0], 2, 7, 7)


def shared_heads(m: Any, x: Tensor) -> Tensor:
    q, k = heads(m.q(x)), heads(m.k(x))[:, :1]
    return functional.scaled_dot_product_attention(q, k, k, enable_gqa=True, is_causal=True)


def rotary(m: Any, x: Tensor) -> Tensor:
    q = heads(m.q(x))
    angle = torch.outer(torch.arange(7.0), torch.linspace(0.1, 1, 4))
    even, odd = q[..., ::2], q[..., 1::2]
    turned = torch.stack([even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()], -1)
    halves = torch.cat([-q[..., 4:], q[..., :4]], -1)
    return joined(turned.flatten(-2) + halves)


def in_windows(m: Any, x: Tensor) -> Tensor:
    windows = x.view(-1, 4, 3, 2, 5, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, 4)
    q, k, v = m.project(windows).view(-1, 4, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
    return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).reshape(x.shape[0], 15, 4, 4)


def in_patches(m: Any, x: Tensor) -> Tensor:
    patches = m.wide(x).view(-1, 4, 3, 2, 5, 2).permute(0, 3, 5, 2, 4, 1).reshape(-1, 15, 4)
    found = functional.scaled_dot_product_attention(patches, patches, patches)
    return (patches + found).view(x.shape[0], 4, 15, 4)


def in_grids(m: Any, x: Tensor) -> Tensor:
    """Windows of 2 × 5 and, in the opposite order, of 3 × 2 positions."""
    y = m.wide(x).permute(0, 2, 3, 1)
    grid = m.squeeze(y.reshape(-1, 2, 3, 5, 2, 4).permute(0, 2, 4, 1, 3, 5).reshape(-1, 10, 4))
    other = m.squeeze(y.reshape(-1, 3, 2, 2, 5, 4).permute(0, 2, 4, 1, 3, 5).reshape(-1, 6, 4))
    grid = grid.view(-1, 3, 2, 2, 5, 4).permute(0, 3, 1, 4, 2, 5).reshape(-1, 6, 10, 4)
    other = other.view(-1, 2, 5, 3, 2, 4).permute(0, 3, 1, 4, 2, 5).reshape(-1, 6, 10, 4)
    return grid + other + y


TOKENS = Results(
    {
        "einsum": by_letters,
        "matmul": by_products,
        "bmm": folded,
        "rotary": rotary,
        "causal": lambda m, x: functional.scaled_dot_product_attention(m.q(x), m.k(x), x, is_causal=True),
        "shared heads": shared_heads,
        "a mask": lambda m, x: functional.scaled_dot_product_attention(*[heads(m.q(x))] * 3, attn_mask=torch.eye(7)),
        "attention": lambda m, x: m.attention(x, x, x)[0],
        "gated": lambda m, x: functional.silu(m.q(x).chunk(2, -1)[0]) * m.q(x).chunk(2, -1)[1],
        "norm": lambda m, x: m.norm(m.q(x)),
        "mean square": lambda m, x: m.rms(m.q(x)),
        "norm by hand": lambda m, x: m.q(x) * torch.rsqrt(m.q(x).pow(2).mean(-1, keepdim=True) + 1e-6),
        "gelu": lambda m, x: m.q(x) * 0.5 * (1 + torch.erf(m.q(x) / 2**0.5)),
        "side by side": lambda m, x: m.k(torch.cat([m.q(x), x[:, :2]], 1)),
        "a token before": lambda m, x: m.k(torch.cat([m.token.weight[None].expand(x.shape[0], -1, -1), m.q(x)], 1)),
        "stacked": lambda m, x: torch.stack([part * k for k, part in enumerate(m.q(x).unbind(1))], 2),
        "replaced": lambda m, x: torch.slice_scatter(x, m.q(x), 1, 0, 7),
        "mixed": lambda m, x: m.mix(x.transpose(1, 2)).transpose(1, 2) + x,
        "flattened": lambda m, x: m.flat(m.q(x).flatten(1)),
        "repeated": lambda m, x: m.q(x) + m.q(x).mean(1, keepdim=True).expand_as(x),
        "batch norm": lambda m, x: m.batch(m.q(x)),
        "chosen": lambda m, x: torch.where(x > 0.5, m.q(x), x).masked_fill(x < -1, 3.0),
        "all": lambda m, x: m.q(x).sum((1, 2)),
        "running": lambda m, x: torch.cumsum(m.q(x), 1),
        "of length one": lambda m, x: functional.normalize(m.q(x), dim=1) + m.q(x).norm(1, 2, keepdim=True),
        "rolled": lambda m, x: torch.roll(m.q(x), (2, -3), (1, 2)),
        "tiled": lambda m, x: m.q(x).repeat(1, 2, 3),
    },
    q=nn.Linear(16, 16), k=nn.Linear(16, 16), v=nn.Linear(16, 16), token=nn.Embedding(1, 16), mix=nn.Linear(7, 7),
    attention=nn.MultiheadAttention(16, 4, batch_first=True), norm=nn.LayerNorm(16), rms=nn.RMSNorm(16),
    flat=nn.Linear(112, 3), batch=nn.BatchNorm1d(7),
)  # fmt: skip

MAPS = Results(
    {
        "group norm": lambda m, x: m.after(m.groups(m.layer(x)).relu()),
        "instance norm": lambda m, x: m.instances(m.layer(x)),
        "layer norm": lambda m, x: functional.layer_norm(m.layer(x), (4, 8)),
        "pixel shuffle": lambda m, x: functional.pixel_shuffle(m.pixels(x), 2),
        "pixel unshuffle": lambda m, x: m.many(functional.pixel_unshuffle(m.layer(x), 2)),
        "channel shuffle": lambda m, x: m.after(functional.channel_shuffle(m.layer(x), 3)),
        "interleaved": lambda m, x: m.layer(x).view(-1, 3, 2, 4, 8).transpose(1, 2).reshape(-1, 6, 4, 8),
        "parts": lambda m, x: torch.cat([m.two(part) for part in m.layer(x).split(2, 1)], 1),
        "slices": lambda m, x: m.two(m.layer(x)[:, 1:3, 1:, ::2]),
        "beside": lambda m, x: m.after(torch.cat([m.layer(x), m.layer(x).relu()], 3)),
        "below": lambda m, x: m.wide(torch.cat([m.wide(x), x], 2)),
        "gate": lambda m, x: x * torch.sigmoid(m.squeeze(x.mean((2, 3))))[:, :, None, None],
        "gate of positions": lambda m, x: x * torch.sigmoid(x.amax(1, keepdim=True) + x.mean(1, keepdim=True)),
        "rows": lambda m, x: m.layer(x).mean(2, keepdim=True) * m.layer(x).amax((1, 3), keepdim=True),
        "nearest": lambda m, x: m.after(functional.interpolate(m.layer(x), scale_factor=2)),
        "nearest by a fraction": lambda m, x: functional.interpolate(m.layer(x), size=(9, 13)),
        "bilinear": lambda m, x: functional.interpolate(m.layer(x), scale_factor=1.5, mode="bilinear"),
        "bilinear to the corners": lambda m, x: functional.interpolate(
            m.layer(x), size=(9, 13), mode="bilinear", align_corners=True
        ),
        "bicubic": lambda m, x: functional.interpolate(m.layer(x), size=(3, 13), mode="bicubic"),
        "transposed": lambda m, x: m.up(m.layer(x)),
        "transposed in groups": lambda m, x: m.up_groups(m.layer(x)),
        "transposed with gaps": lambda m, x: m.up_gaps(m.layer(x)),
        "padded": lambda m, x: m.stride(functional.pad(m.layer(x), (0, 1, 2, -1), value=0.5)),
        "reflected": lambda m, x: m.after(functional.pad(m.layer(x), (2, 1, 1, 3), "reflect")),
        "replicated": lambda m, x: m.after(functional.pad(m.layer(x), (3, 0, 1, 2), "replicate")),
        "circular": lambda m, x: functional.pad(m.layer(x), (2, 8, 1, 3), "circular"),
        "a row replicated": lambda m, x: functional.pad(m.layer(x)[:, :, 1:2], (0, 0, 2, 1), "replicate"),
        "mirrored": lambda m, x: m.after(m.layer(x).flip(1, 3)) + m.after(m.layer(x)[:, [5, 0, 0, 2, 4, -2]]),
        "constants": lambda m, x: 1 - m.layer(x) + 2 / (1 + m.layer(x).exp()) - m.layer(x).log_softmax(2),
        "elu": lambda m, x: functional.selu(functional.elu(m.layer(x))),
        "mish": lambda m, x: functional.softplus(functional.mish(m.layer(x))),
        "slopes": lambda m, x: m.slopes(m.layer(x)),
        "powers": lambda m, x: torch.maximum(m.layer(x).abs().sqrt(), m.layer(x) ** 2) - m.layer(x) ** 3,
        "products": lambda m, x: torch.addcmul(m.layer(x), m.layer(x), m.layer(x), value=0.5),
        "columns first": lambda m, x: m.layer(x).permute(0, 1, 3, 2).contiguous(),
        "windows": lambda m, x: m.squeeze(
            x.view(-1, 4, 3, 2, 5, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, 4)
        ).view(x.shape[0], 3, 5, 2, 2, 4),
        "attention in windows": in_windows,
        "attention in patches": in_patches,
        "layers in grids": in_grids,
    },
    layer=nn.Conv2d(4, 6, 3), after=nn.Conv2d(6, 2, 3, padding=1), groups=nn.GroupNorm(2, 6), two=nn.Conv2d(2, 3, 1),
    instances=nn.InstanceNorm2d(6, affine=True), pixels=nn.Conv2d(4, 12, 3), many=nn.Conv2d(24, 2, 1),
    wide=nn.Conv2d(4, 4, 1), squeeze=nn.Linear(4, 4), up=nn.ConvTranspose2d(6, 3, 2, 2), slopes=nn.PReLU(6),
    project=nn.Linear(4, 12), up_groups=nn.ConvTranspose2d(6, 4, 3, 2, padding=1, output_padding=1, groups=2),
    up_gaps=nn.ConvTranspose2d(6, 3, (3, 4), (2, 3), dilation=2), stride=nn.Conv2d(6, 2, 3, stride=2),
)  # fmt: skip

LINES = Results(
    {
        "tokens": lambda m, x: m.head(m.last(m.norm(m.first(x))).transpose(1, 2)),
        "longer": lambda m, x: m.up(x),
        "linear": lambda m, x: functional.interpolate(m.first(x), 50, mode="linear"),
        "reflected": lambda m, x: functional.pad(m.first(x), (20, 3), "reflect"),
        "mirrored": lambda m, x: m.last(m.first(x).flip(-1)),
    },
    first=nn.Conv1d(4, 8, 3), norm=nn.GroupNorm(2, 8), last=nn.Conv1d(8, 8, 3, padding=1), head=nn.Linear(8, 5),
    up=nn.ConvTranspose1d(4, 3, 4, 2, 1),
)  # fmt: skip

VOLUMES = Results(
    {
        "even": lambda m, x: m.after(m.norm(m.even(x)).relu() + x),
        "strides": lambda m, x: m.strides(x).sigmoid(),
        "uneven": lambda m, x: m.uneven(x).mean((2, 3, 4)),
        "same": lambda m, x: m.same(x),
        "circular": lambda m, x: m.circular(x),
        "apart": lambda m, x: m.along(m.planes(x)).relu(),
        "up": lambda m, x: m.up(m.strides(x)),
        "maxima": lambda m, x: m.after(functional.max_pool3d(x, 3, 2, 1, ceil_mode=True)),
        "means": lambda m, x: functional.avg_pool3d(x, (2, 3, 3), (1, 2, 2), (1, 0, 1), count_include_pad=False),
        "one": lambda m, x: functional.adaptive_avg_pool3d(m.even(x), 1).flatten(1),
        "parts": lambda m, x: functional.adaptive_max_pool3d(m.even(x), (2, 3, 2)),
        "larger": lambda m, x: functional.interpolate(m.even(x), scale_factor=2, mode="trilinear"),
        "nearest": lambda m, x: functional.interpolate(m.even(x), scale_factor=2),
    },
    even=nn.Conv3d(4, 4, 3, padding=1), norm=nn.BatchNorm3d(4), after=nn.Conv3d(4, 2, 1),
    strides=nn.Conv3d(4, 6, (3, 4, 2), (2, 3, 1), (1, 2, 0), groups=2, bias=False),
    uneven=nn.Conv3d(4, 3, (2, 3, 1), dilation=(2, 1, 1)), same=nn.Conv3d(4, 3, (2, 4, 4), padding="same"),
    circular=nn.Conv3d(4, 2, 3, padding=1, padding_mode="circular"),
    planes=nn.Conv3d(4, 5, (1, 3, 3), padding=(0, 1, 1)), along=nn.Conv3d(5, 3, (3, 1, 1), (2, 1, 1), (1, 0, 0)),
    up=nn.ConvTranspose3d(6, 3, (1, 2, 3), (1, 2, 3)),
)  # fmt: skip


class Words(nn.Module):
    """Numbers of words and a mask, with positions and a mask that depends on both."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 16), nn.Embedding(7, 16)
        self.q = nn.Linear(16, 16)

    def forward(self, words: Tensor, mask: Tensor) -> dict[str, Tensor]:
        x = self.q(self.words(words) + self.places(torch.arange(7)))
        q, seen = heads(x), mask[:, None, None, :]
        causal = torch.ones(7, 7, dtype=torch.bool).tril() & seen.bool()
        scores = (q @ q.transpose(-1, -2)).masked_fill(seen == 0, -1e9)
        return {
            "given": functional.scaled_dot_product_attention(q, q, q, attn_mask=seen.bool().expand(-1, 2, 7, 7)),
            "both": functional.scaled_dot_product_attention(q, q, q, attn_mask=causal),
            "filled": scores.softmax(-1) @ q,
            "of the words": x * (words != 0)[..., None],
            "counted": self.places((words != 0).int().cumsum(1) - 1 + (words == 0).int().cumsum(1)),
        }


def numbers(batch: int) -> tuple[Tensor, ...]:
    mask = torch.randint(2, (batch, 7))
    mask[:, 0] = 1
    return torch.randint(11, (batch, 7)), mask


NETWORKS: dict[str, tuple[nn.Module, Callable[[int], tuple[Tensor, ...]]]] = {
    "tokens": (TOKENS, lambda n: (torch.randn(n, 7, 16),)),
    "maps": (MAPS, lambda n: (torch.randn(n, 4, 6, 10),)),
    "lines": (LINES, lambda n: (torch.randn(n, 4, 37),)),
    "volumes": (VOLUMES, lambda n: (torch.randn(n, 4, 5, 7, 6),)),
    "words": (Words(), numbers),
}


@pytest.fixture(scope="module")
def compiled() -> dict[str, Program]:
    torch.manual_seed(0)
    programs = {name: compile(model.eval(), make(2), threads=2) for name, (model, make) in NETWORKS.items()}
    for name, program in programs.items():
        assert isinstance(program, Program), (name, program.outside)
    return programs


def close(found: Any, expected: Tensor, name: str) -> None:
    """Fail if two results differ by more than 1e-5 of the largest number."""
    found = torch.as_tensor(found)
    assert found.shape == expected.shape, name
    assert float((found - expected).abs().max()) <= 1e-5 * float(expected.abs().max()), name


@pytest.mark.parametrize("name", NETWORKS)
def test_like_pytorch(compiled: dict[str, Program], name: str) -> None:
    model, make = NETWORKS[name]
    for batch in BATCHES:
        given = make(batch)
        with torch.inference_mode():
            expected = model(*given)
        found = compiled[name](*given)
        assert list(found) == list(expected)
        for key, result in found.items():
            close(result, expected[key], f"{name}: {key}, batch {batch}")


def test_files_compute_the_same(compiled: dict[str, Program], tmp_path: Path) -> None:
    for name, program in compiled.items():
        program.save(tmp_path / "model.rvsm")
        given = NETWORKS[name][1](5)
        expected, found = program(*given), rvsm.runtime.load(tmp_path / "model.rvsm", threads=1)(*given)
        for key, value in expected.items():
            close(found[key], value, f"{name}: {key}")


def test_inputs_by_name(compiled: dict[str, Program]) -> None:
    words, mask = numbers(3)
    program = compiled["words"]
    for found in (program(mask=mask, words=words), program(words, mask=mask)):
        assert torch.equal(found["both"], program(words, mask)["both"])
    with pytest.raises(TypeError, match="the inputs mask are expected but masks are given"):
        program(words, masks=mask)
    with pytest.raises(ValueError, match="takes 2 inputs but 1 are given"):
        program(words)
    with pytest.raises(IndexError, match="must be from 0 to 10"):
        program(words + 11, mask)


class Reordered(nn.Module):
    """A linear layer between two orders of dimensions."""

    def __init__(self, sizes: list[int], order: list[int], merged: int) -> None:
        super().__init__()
        self.sizes, self.order = sizes, order
        after = [sizes[k] for k in order]
        self.split = [math.prod(after[:merged]), *after[merged:]]
        self.layer = nn.Linear(self.split[-1], 3)

    def forward(self, x: Tensor) -> Tensor:
        y = x.reshape(-1, *self.sizes).permute(0, *(k + 1 for k in self.order))
        return self.layer(y.reshape(x.shape[0], *self.split)).transpose(1, -1)


@settings(max_examples=8)
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=5), data=st.data())
def test_any_order_of_dimensions(sizes: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(sizes))))
    model = Reordered(sizes, list(order), data.draw(st.integers(1, len(sizes)))).eval()
    x = torch.randn(3, math.prod(sizes))
    program = compile(model, x, threads=1)
    assert isinstance(program, Program), program.outside
    with torch.inference_mode():
        close(program(x), model(x), str(order))


@settings(max_examples=200)
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5), data=st.data())
def test_views_are_those_of_numpy(sizes: list[int], data: st.DataObject) -> None:
    """Reshape, exchange, cut and repeat: the numbers at the places of the view are NumPy's."""
    expected = np.arange(math.prod(sizes)).reshape(sizes)
    view: View | None = View.dense([(False, size) for size in sizes])
    for _ in range(4):
        assert view is not None
        rank = expected.ndim
        match data.draw(st.integers(0, 3)):
            case 0 if rank:
                order = data.draw(st.permutations(range(rank)))
                view, expected = view.permuted(list(order)), expected.transpose(order)
            case 1 if rank:
                k = data.draw(st.integers(0, rank - 1))
                start = data.draw(st.integers(0, expected.shape[k] - 1))
                cut = view.sliced(k, start, len(range(start, expected.shape[k], 2)), 2)
                if cut is not None:
                    view, expected = cut, expected[(slice(None),) * k + (slice(start, None, 2),)]
            case 2 if rank:
                k = data.draw(st.integers(0, rank - 1))
                index = data.draw(st.integers(0, expected.shape[k] - 1))
                view, expected = view.selected(k, index), expected.take(index, k)
            case _:
                flat = view.reshaped([(False, expected.size)])
                if flat is not None:
                    view, expected = flat, expected.reshape(-1)
    assert view is not None
    places = np.full((), view.offset)
    for dim in view.dims:
        inner = np.zeros((), dtype=int)
        for axis in dim:
            inner = np.add.outer(inner, np.arange(axis.size) * axis.stride)
        places = np.add.outer(places, inner.reshape(-1))
    np.testing.assert_array_equal(places, expected)


class Late(nn.Module):
    """What PyTorch has to compute, between parts that are native, in orders of their own, with a way past it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(16, 16), nn.Conv1d(16, 8, 3), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a = self.first(x).transpose(0, 1)
        b = self.second(torch.sin(a).permute(1, 2, 0))
        return self.third(torch.cumprod(b, 1)) + a.mean((0, 2))[:, None, None], heads(a.transpose(0, 1))


def test_parts_hand_over_tensors_in_any_order() -> None:
    model = Late().eval()
    program = compile(model, torch.randn(2, 7, 16), threads=1)
    assert isinstance(program, MixedProgram)
    assert {"aten.sin", "aten.cumprod"} <= {name.split(" ")[0] for name in program.outside}
    for batch in BATCHES:
        x = torch.randn(batch, 7, 16)
        with torch.inference_mode():
            expected = model(x)
        for found, wanted in zip(program(x), expected, strict=True):
            close(found, wanted, str(batch))


class Twice(nn.Module):
    """A tensor of PyTorch that leaves a part in the order in which another part takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(7, 4, 3), nn.Conv1d(16, 5, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        s = torch.sin(x)
        turned = s.transpose(1, 2)
        return self.first(s), self.second(torch.cos(turned) + turned)


def test_parts_that_need_the_same_order() -> None:
    model = Twice().eval()
    program = compile(model, torch.randn(2, 7, 16), threads=1)
    x = torch.randn(3, 7, 16)
    with torch.inference_mode():
        for found, wanted in zip(program(x), model(x), strict=True):
            close(found, wanted, "")
