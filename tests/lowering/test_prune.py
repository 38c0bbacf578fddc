"""Channels that cannot matter go, and only those; at borders above all."""

import numpy as np
import pytest
import torch
from torch import nn

from rvsm.lowering import compile, removed_channels
from rvsm.lowering.prune import apply
from rvsm.runtime import Program
from rvsm.runtime.plan.operation import ACTIVATIONS, Activation


def channels(program: object) -> dict[str, int]:
    assert isinstance(program, Program)
    shapes = program.plan.shapes
    return {o.name: shapes[program.plan.value_of(k)][0] for k, o in enumerate(program.plan.operations)}


def check(model: nn.Module, *shape: int) -> dict[str, int]:
    model.eval()
    program = compile(model, torch.zeros(1, *shape), threads=1)
    for batch in (1, 16):
        x = torch.randn(batch, *shape)
        with torch.inference_mode():
            torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5)
    return channels(program)


def two_layers(*, bias: float, padding: int, activation: nn.Module | None = None) -> nn.Sequential:
    """Return two convolutions, of which the first has three dead filters with this bias."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), activation or nn.ReLU(), nn.Conv2d(8, 5, 3, padding=padding), nn.ReLU()
    )
    first = model[0]
    assert isinstance(first, nn.Conv2d)
    assert first.bias is not None
    first.weight.data[[1, 4, 6]] = 0
    first.bias.data[[1, 4, 6]] = bias
    return model


@pytest.mark.parametrize("padding", [0, 1])
def test_a_dead_filter_that_gives_zero_goes(padding: int) -> None:
    assert check(two_layers(bias=-1.0, padding=padding), 3, 7, 7)["0"] == 5


def test_a_dead_filter_with_a_constant_moves_into_the_next_bias_without_padding() -> None:
    assert check(two_layers(bias=2.0, padding=0), 3, 7, 7)["0"] == 5


def test_a_dead_filter_with_a_constant_stays_where_padding_would_show_it() -> None:
    assert check(two_layers(bias=2.0, padding=1), 3, 7, 7)["0"] == 8


def test_a_sigmoid_of_nothing_is_a_half() -> None:
    assert check(two_layers(bias=0.0, padding=1, activation=nn.Sigmoid()), 3, 6, 6)["0"] == 8
    assert check(two_layers(bias=0.0, padding=0, activation=nn.Sigmoid()), 3, 6, 6)["0"] == 5


@pytest.mark.parametrize(
    "pooling", [nn.MaxPool2d(2), nn.AvgPool2d(3, 2, 1), nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(3)]
)
@pytest.mark.parametrize("bias", [-1.0, 2.0])
@pytest.mark.parametrize("padding", [0, 1])
def test_through_pooling(pooling: nn.Module, bias: float, padding: int) -> None:
    layers = two_layers(bias=bias, padding=padding)
    check(nn.Sequential(layers[0], layers[1], pooling, layers[2], layers[3]), 3, 9, 9)


def test_an_activation_after_the_pooling_counts() -> None:
    layers = two_layers(bias=0.0, padding=0)
    model = nn.Sequential(layers[0], nn.ReLU(), nn.MaxPool2d(2), nn.Sigmoid(), layers[2])
    assert check(model, 3, 9, 9)["0"] == 5
    layers = two_layers(bias=0.0, padding=1)
    model = nn.Sequential(layers[0], nn.ReLU(), nn.MaxPool2d(2), nn.Sigmoid(), layers[2])
    assert check(model, 3, 9, 9)["0"] == 8


def test_channels_that_nobody_reads_are_not_computed() -> None:
    model = two_layers(bias=2.0, padding=1)
    second = model[2]
    assert isinstance(second, nn.Conv2d)
    second.weight.data[:, [0, 1, 2]] = 0
    assert check(model, 3, 7, 7)["0"] == 5


def test_removal_goes_on_backwards() -> None:
    model = nn.Sequential(
        *(layer for k in range(4) for layer in (nn.Conv2d(6 if k else 3, 6, 3, padding=1), nn.ReLU()))
    )
    last, before = model[6], model[4]
    assert isinstance(last, nn.Conv2d)
    assert isinstance(before, nn.Conv2d)
    last.weight.data[:, :3] = (
        0  # then nobody needs channels 0 to 2 of layer 4, which alone read channels 3 to 5 of layer 2
    )
    before.weight.data[3:, 3:] = 0
    found = check(model, 3, 8, 8)
    assert found["4"] == 3
    assert found["2"] == 3


def test_all_filters_dead() -> None:
    model = two_layers(bias=-1.0, padding=1)
    first = model[0]
    assert isinstance(first, nn.Conv2d)
    first.weight.data.zero_()
    first.bias.data.fill_(-1.0)
    assert check(model, 3, 7, 7)["0"] == 1


def test_what_is_added_returned_or_concatenated_is_kept() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = two_layers(bias=-1.0, padding=1)
            self.layers[2] = nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layers[1](self.layers[0](x))
            return torch.cat([self.layers[2](y) + y, y], 1)

    assert check(Residual(), 3, 7, 7)["layers.0"] == 8


def test_linear_layers_too() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 10), nn.ReLU(), nn.Linear(10, 3)
    )
    first, second = model[0], model[3]
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.Linear)
    first.weight.data[2], first.bias.data[2] = 0, 1.5
    second.weight.data[4:7] = 0
    found = check(model, 2, 6, 6)
    assert found["0"] == 5
    assert found["3"] == 7


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_can_be_applied_to_constants(name: str) -> None:
    values = np.array([-1.0, 0.0, 2.0], dtype=np.float32)
    assert apply(Activation(name, 0.0, 1.0), values).shape == (3,)


def test_the_channels_that_go_are_counted_by_the_code_that_removes_them() -> None:
    """Zero filters, constants that move into a bias, and channels that nobody reads: more than have a norm of zero."""
    model = two_layers(bias=2.0, padding=0)
    last = model[2]
    assert isinstance(last, nn.Conv2d)
    last.weight.data[:, 0] = 0
    left = sum(check(model, 3, 7, 7).values())
    assert removed_channels(model, torch.zeros(1, 3, 7, 7)) == (4, 13)
    assert left == 13 - 4
