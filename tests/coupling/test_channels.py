"""Channels are found where they are, whatever couples them."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rvsm.coupling import Channels, find_channels


def channels_of(model: nn.Module, *shape: int) -> Channels:
    return find_channels(model, torch.zeros(shape))


def test_a_chain_has_the_outputs_of_each_layer_as_channels() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    found = channels_of(model, 1, 3)
    assert found.count == 3 + 5 + 4 + 2
    assert torch.equal(found.outputs["0"], found.inputs["2"])
    assert torch.equal(found.outputs["2"], found.inputs["4"])
    assert {found.kept[int(c)] for c in found.inputs["0"]} == {"it is an input of the network"}
    assert {found.kept[int(c)] for c in found.outputs["4"]} == {"it is an output of the network"}
    assert len(found.kept) == 5
    assert not found.lost


def test_norms_and_depthwise_convolutions_pass_channels_on() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.PReLU(6), nn.Conv2d(6, 6, 3, groups=6), nn.InstanceNorm2d(6),
        nn.Conv2d(6, 2, 1),
    )  # fmt: skip
    found = channels_of(model, 1, 3, 8, 8)
    for name in ("1", "2", "3"):
        assert torch.equal(found.outputs[name], found.outputs["0"]), name
        assert torch.equal(found.inputs[name], found.outputs["0"]), name
    assert torch.equal(found.inputs["5"], found.outputs["0"])


def test_a_channel_is_several_inputs_of_a_linear_layer_after_flattening() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2))
    found = channels_of(model, 1, 3, 8, 8)
    assert torch.equal(found.inputs["3"], found.outputs["0"].repeat_interleave(36))


class Sums(nn.Module):
    """Outputs of layers that are added, halves of one of them to each other, and concatenated twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 6), nn.Linear(3, 6), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x) + self.b(x)
        return self.c(torch.cat([y, torch.relu(y)], 1))


def test_sums_and_concatenations_couple_layers() -> None:
    found = channels_of(Sums(), 1, 3)
    assert torch.equal(found.outputs["a"], found.outputs["b"])
    assert torch.equal(found.inputs["c"], found.outputs["a"].repeat(2))


def test_what_is_added_to_an_input_of_the_network_stays() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(x + self.a(x))

    found = channels_of(Model(), 1, 3)
    assert {found.kept[int(c)] for c in found.outputs["a"]} == {"it is an input of the network"}


def test_every_output_of_the_network_stays_even_if_it_is_used_inside() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 5), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            hidden = self.a(x)
            return {"hidden": hidden, "result": self.b(hidden)}

    found = channels_of(Model(), 1, 3)
    assert {found.kept[int(c)] for c in found.outputs["a"]} == {"it is an output of the network"}


class Between(nn.Module):
    def __init__(self, between: Any) -> None:
        super().__init__()
        self.a, self.between, self.b = nn.Conv2d(3, 8, 3), between, nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.between(self.a(x)))


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (nn.GroupNorm(2, 8), "GroupNorm normalises over it"),
        (lambda x: x * x.mean(1, keepdim=True), "mean runs over it"),
        (lambda x: x * x.amax((-1, -3), keepdim=True), "amax runs over it"),
        (lambda x: x.softmax(1), "softmax runs over it"),
        (lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), "forward splits the channels at fixed positions, by split"),
        (nn.Conv2d(8, 8, 3, groups=4).requires_grad_(False), None),
        (nn.ConvTranspose2d(8, 8, 3, groups=2), "the groups of its convolution cannot be made smaller"),
        (nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3)), "its weight is computed from others"),
        (lambda x: x * x.mean((2, 3), keepdim=True), None),
        (lambda x: x * x.amax((-1, -2), keepdim=True), None),
    ],
)
def test_reasons_to_stay(between: Any, reason: str | None) -> None:
    found = channels_of(Between(between), 1, 3, 8, 8)
    assert {found.kept.get(int(c)) for c in found.outputs["a"]} == {reason}
    assert reason is not None or not found.lost


@pytest.mark.parametrize(
    ("between", "operation"),
    [
        (lambda x: x.roll(1, 1), "roll"),
        (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), "transpose"),
        (lambda x: x.flip(1), "flip"),
        (lambda x: torch.einsum("bchw,bdhw->bchw", x, x), "permute"),
    ],
)
def test_operations_that_are_not_known_are_named(between: Any, operation: str) -> None:
    found = channels_of(Between(between), 1, 3, 8, 8)
    assert operation in {found.lost.get(int(c)) for c in found.outputs["a"]}


def test_the_network_stays_as_it_is() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Conv2d(4, 2, 1)).train()
    model[0].requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    channels_of(model, 2, 3, 8, 8)
    assert all(torch.equal(w, before[name]) for name, w in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not model[0].weight.requires_grad
    assert all(not module._forward_hooks for module in model.modules())
