"""The smaller network computes what the one with zeros computes, and is an ordinary network."""

import copy
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rvsm
from rvsm.export import to_onnx

EXAMPLE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def size(model: nn.Module) -> int:
    return sum(w.numel() for w in model.parameters())


def same(one: nn.Module, other: nn.Module, x: Tensor = EXAMPLE) -> None:
    with torch.no_grad():
        torch.testing.assert_close(copy.deepcopy(one).eval()(x), copy.deepcopy(other).eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_empty_channels_are_removed_and_the_outputs_are_equal(zoo: Any, style: str, share: float) -> None:
    model = zoo.network(style)
    chosen = zoo.empty_channels(model, share)
    smaller = rvsm.shrink(model, EXAMPLE)
    assert chosen
    assert size(smaller) < size(model)
    same(model, smaller)
    same(model, smaller, torch.randn(3, 3, 8, 8))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_empty_filters_leave_constants_that_are_folded_or_kept(zoo: Any, style: str, seed: int) -> None:
    model = zoo.network(style, seed)
    zoo.empty_filters(model, 0.5, seed)
    same(model, rvsm.shrink(model, EXAMPLE))


def test_all_empty_channels_go(zoo: Any) -> None:
    model = zoo.network("residual")
    with torch.no_grad():
        for w in (*model.stem.parameters(), *model.one[3:].parameters()):
            w[3:] = 0
    smaller = rvsm.shrink(model, EXAMPLE)
    assert [tuple(m.weight.shape[:2]) for m in smaller.modules() if isinstance(m, nn.Conv2d)] == [
        (3, 3), (12, 3), (3, 12), (10, 3), (10, 3),
    ]  # fmt: skip


def test_a_channel_of_a_residual_sum_stays_if_one_of_its_layers_needs_it(zoo: Any) -> None:
    model = zoo.network("residual")
    with torch.no_grad():
        for w in model.one[3:].parameters():
            w[3:] = 0
    with pytest.warns(UserWarning, match="no channels to remove"):
        smaller = rvsm.shrink(model, EXAMPLE)
    assert size(smaller) == size(model)


def constant(padding: int, **options: Any) -> nn.Sequential:
    """Return a network whose channel 1 is 2 for every input."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3, padding=padding, **options))
    with torch.no_grad():
        model[0].weight[1] = 0
        model[0].bias[1] = 2
    return model


def test_a_constant_moves_into_the_bias_of_the_next_layer() -> None:
    model = constant(0, bias=False)
    smaller = rvsm.shrink(model, EXAMPLE)
    assert smaller[0].out_channels == 3
    torch.testing.assert_close(smaller[2].bias, 2 * model[2].weight[:, 1].sum((1, 2)))
    same(model, smaller)


def test_a_constant_stays_if_the_next_layer_pads_with_zeros() -> None:
    with pytest.warns(UserWarning, match="no channels to remove"):
        smaller = rvsm.shrink(constant(1), EXAMPLE)
    assert smaller[0].out_channels == 4


def test_a_constant_moves_if_the_next_layer_pads_otherwise() -> None:
    model = constant(1, padding_mode="reflect")
    smaller = rvsm.shrink(model, EXAMPLE)
    assert smaller[0].out_channels == 3
    same(model, smaller)


def test_a_channel_that_nobody_reads_goes_and_with_it_what_only_it_read() -> None:
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    with torch.no_grad():
        model[4].weight[:, :2] = 0
        model[2].weight[2:, 0] = 0
    smaller = rvsm.shrink(model, torch.randn(2, 3))
    assert (smaller[0].out_features, smaller[2].out_features) == (5, 3)
    same(model, smaller, torch.randn(4, 3))


def test_a_layer_keeps_one_channel_at_least(zoo: Any) -> None:
    model = zoo.network("vgg")
    zoo.empty_channels(model, 1.0)
    smaller = rvsm.shrink(model, EXAMPLE)
    assert (smaller[0].out_channels, smaller[4].out_channels, smaller[8].out_features) == (1, 1, 1)
    same(model, smaller)


def test_groups_of_a_convolution_keep_equally_many_channels() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(), nn.Conv2d(8, 2, 1))
    with torch.no_grad():
        for w in model[0].parameters():
            w[[0, 1, 4]] = 0  # two of the first group, one of the second
        for w in model[2].parameters():
            w[[0, 5]] = 0
    smaller = rvsm.shrink(model, EXAMPLE)
    assert (smaller[2].in_channels, smaller[2].out_channels, smaller[2].groups) == (6, 6, 2)
    same(model, smaller)


def test_the_model_stays_as_it_was(zoo: Any) -> None:
    model = zoo.network("residual").train()
    zoo.empty_channels(model, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    smaller, _ = rvsm.shrink(model, EXAMPLE, optimizer=optimizer)
    assert [module.training for module in model.modules()] == modes == [True] * len(modes)
    assert all(module.training for module in smaller.modules())
    assert all(torch.equal(w, before[name]) for name, w in model.state_dict().items())
    assert all(w.requires_grad and w.grad is None for w in model.parameters())
    assert all(w.is_leaf for w in smaller.parameters())
    assert not {id(w) for w in model.parameters()} & {id(w) for w in smaller.parameters()}


def shrunk(zoo: Any, style: str = "residual") -> nn.Module:
    model = zoo.network(style)
    zoo.empty_channels(model, 0.5)
    return rvsm.shrink(model, EXAMPLE)


def test_it_saves_and_loads(zoo: Any, style: str) -> None:
    smaller, file = shrunk(zoo, style), io.BytesIO()
    torch.save(smaller.state_dict(), file)
    other = copy.deepcopy(smaller)
    for w in other.parameters():
        w.data.zero_()
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    same(smaller, other)


def test_it_compiles(zoo: Any, style: str) -> None:
    smaller = shrunk(zoo, style).eval()
    found = torch.as_tensor(rvsm.compile(smaller, EXAMPLE)(EXAMPLE))
    torch.testing.assert_close(found, smaller(EXAMPLE).detach(), rtol=1e-3, atol=1e-4)


def test_it_exports(zoo: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    difference = to_onnx(shrunk(zoo).eval(), EXAMPLE, tmp_path / "small.onnx")
    assert difference is not None
    assert difference < 1e-4


OPTIMIZERS = {
    "sgd": lambda w: torch.optim.SGD(w, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda w: torch.optim.AdamW(w, lr=0.01),
    "rmsprop": lambda w: torch.optim.RMSprop(w, lr=0.01, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("style", ["residual", "mobile", "vgg"])
def test_it_trains_on_as_the_larger_network_would(zoo: Any, style: str, name: str) -> None:
    model = zoo.network(style).eval()  # in which dead channels have no part in the gradients of others
    zoo.empty_channels(model, 0.5)
    support = rvsm.keep_zeros(model, include=[name for name, _ in model.named_parameters()])
    optimizer = OPTIMIZERS[name](model.parameters())

    def step(network: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        network(x).square().sum().backward()
        optimizer.step()

    for seed in range(3):
        step(model, optimizer, seed)
    smaller, carried = rvsm.shrink(model, EXAMPLE, optimizer=optimizer)
    assert type(carried) is type(optimizer)
    assert size(smaller) < size(model)
    for seed in range(3, 6):
        step(model, optimizer, seed)
        step(smaller, carried, seed)
    support.remove()
    same(model, smaller)


def test_options_of_the_optimizers_groups_are_carried_over() -> None:
    model = constant(0, bias=False)
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2].parameters(), "weight_decay": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=0.2, momentum=0.9)
    smaller, carried = rvsm.shrink(model, EXAMPLE, optimizer=optimizer)
    assert [group["lr"] for group in carried.param_groups] == [0.5, 0.2]
    assert [group["weight_decay"] for group in carried.param_groups] == [0, 0.1]
    assert [len(group["params"]) for group in carried.param_groups] == [2, 2]  # with the new bias
    assert carried.param_groups[1]["params"][1] is smaller[2].bias
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 1]


def test_an_optimizer_of_another_model_is_refused(zoo: Any) -> None:
    model = zoo.network("vgg")
    zoo.empty_channels(model, 0.5)
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(ValueError, match="trains parameters that the model does not have"):
        rvsm.shrink(model, EXAMPLE, optimizer=optimizer)


def test_what_an_optimizer_remembers_in_another_shape_is_refused(zoo: Any) -> None:
    model = zoo.network("vgg")
    zoo.empty_channels(model, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model[0].weight]["rows"] = torch.zeros(6)
    with pytest.raises(ValueError, match=r"the optimizer's 'rows' for '0.weight' has shape \[6\]"):
        rvsm.shrink(model, EXAMPLE, optimizer=optimizer)


class Through(nn.Module):
    """Two layers with something between them."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)
        self.between = between
        with torch.no_grad():
            for w in self.first.parameters():
                w[1::2] = 0

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x)))


@pytest.mark.parametrize(
    ("between", "operation"),
    [
        (lambda x: x.flip(1), "flip"),
        (lambda x: x.roll(1, 1), "roll"),
        (lambda x: x[:, torch.arange(7, -1, -1)], "index"),
        (lambda x: x.unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2), "transpose"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operation_that_cannot_be_followed_is_named(between: Any, operation: str) -> None:
    model = Through(between)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=f"through the operation '{operation}'.*the network was not changed"):
        rvsm.shrink(model, EXAMPLE)
    assert all(torch.equal(w, before[name]) for name, w in model.state_dict().items())


@pytest.mark.parametrize(
    "between",
    [
        lambda x: x - x.mean(1, keepdim=True),
        lambda x: x.softmax(1),
        lambda x: torch.cat(x.split(4, 1)[::-1], 1),
        nn.GroupNorm(2, 8),
    ],
    ids=["mean", "softmax", "split", "group norm"],
)
def test_channels_that_an_operation_needs_stay(between: Any) -> None:
    model = Through(between)
    with pytest.warns(UserWarning, match="no channels to remove"):
        smaller = rvsm.shrink(model, EXAMPLE)
    same(model, smaller)


def test_fixed_sizes_in_forward_are_refused() -> None:
    model = Through(lambda x: x.view(len(x), 8, 8, 8))
    with pytest.raises(ValueError, match=r"the smaller network fails.*write -1 or x\.shape"):
        rvsm.shrink(model, EXAMPLE)


def test_inputs_and_outputs_of_the_network_stay() -> None:
    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 4, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.first(x) + x
            return y, self.last(y)

    model = Ends()
    nn.init.zeros_(model.first.weight)
    nn.init.zeros_(model.last.weight)
    with pytest.warns(UserWarning, match="no channels to remove"):
        assert size(rvsm.shrink(model, EXAMPLE)) == size(model)


def test_tied_weights_stay() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    model[2].weight = model[0].weight
    with torch.no_grad():
        model[0].weight[:3] = 0
        model[0].bias.zero_()
        model[2].bias.zero_()
    with pytest.warns(UserWarning, match="no channels to remove"):
        smaller = rvsm.shrink(model, torch.randn(2, 6))
    same(model, smaller, torch.randn(2, 6))


def test_a_layer_that_is_called_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.last = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.first(x))
            return self.last(torch.relu(self.again(torch.relu(self.again(x)))))

    model = Twice()
    with torch.no_grad():
        for layer in (model.first, model.again):
            layer.weight[:2] = layer.bias[:2] = 0
    smaller = rvsm.shrink(model, torch.randn(2, 5))
    assert smaller.again.weight.shape == (4, 4)
    same(model, smaller, torch.randn(3, 5))


def test_linear_layers_on_tokens() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    model, x = nn.Sequential(nn.Linear(5, 6), Block(), nn.Linear(6, 2)), torch.randn(2, 7, 5)
    with torch.no_grad():
        model[1].up.weight[:5] = 0  # what their biases leave is folded
        model[0].weight[0] = model[0].bias[0] = 0
    smaller = rvsm.shrink(model, x)
    assert (smaller[1].up.out_features, smaller[0].out_features) == (7, 6)
    same(model, smaller, x)


def test_a_network_that_cannot_be_run_is_refused(zoo: Any) -> None:
    with pytest.raises(ValueError, match="cannot follow the channels of Sequential"):
        rvsm.shrink(zoo.network("vgg"), torch.zeros(1, 4, 8, 8))


def test_an_example_that_is_no_tensor_is_refused(zoo: Any) -> None:
    with pytest.raises(TypeError, match="example_input must be a batch"):
        rvsm.shrink(zoo.network("vgg"), "images")  # type: ignore[call-overload]


def test_a_missing_extra_is_a_sentence(zoo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'rvsm[shrink]'")):
        rvsm.shrink(zoo.network("vgg"), EXAMPLE)
