"""What is folded and fused: the plan of a network is as short as it should be."""

import math

import pytest
import torch
from torch import nn

from rvsm.lowering import compile
from rvsm.models import resnet18
from rvsm.runtime import Program
from rvsm.runtime.plan.operations import AdaptivePooling, Convolution


def plan_of(model: nn.Module, *shape: int) -> list[object]:
    program = compile(model.eval(), torch.zeros(1, *shape), threads=1)
    assert isinstance(program, Program)
    return list(program.plan.operations)


def test_resnet18_is_convolutions_and_a_mean() -> None:
    operations = plan_of(resnet18(width=0.125), 3, 32, 32)
    assert [type(o) for o in operations] == [Convolution] * 20 + [AdaptivePooling, Convolution]
    convolutions = [o for o in operations if isinstance(o, Convolution)]
    assert sum(o.residual is not None for o in convolutions) == 8
    assert sum(o.activation.name == "clamp" for o in convolutions) == 17
    assert convolutions[1].name == "3.conv1"


def test_flattening_and_linear_are_one_convolution() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 20, 5), nn.Dropout(), nn.GELU())
    operations = plan_of(model, 1, 6, 7)
    assert [o.kernel for o in operations if isinstance(o, Convolution)] == [(3, 3), (4, 5)]
    assert len(operations) == 2


def test_batch_norm_with_and_without_parameters() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, affine=False), nn.BatchNorm2d(2), nn.SiLU())
    assert len(plan_of(model, 1, 6, 6)) == 1


def test_what_others_need_is_not_fused() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(2, 2, 3, padding=1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.layer(x)
            return y, y.relu()

    assert len(plan_of(Twice(), 2, 5, 5)) == 2


class Reshaped(nn.Module):
    """A convolution of one tap after a reshaping, which is a linear layer only if it has no border."""

    def __init__(self, **options: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(48, 5, 1, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.reshape(x.shape[0], -1, 1, 1))


@pytest.mark.parametrize(
    "options", [{"padding": 1}, {"dilation": 2}, {"stride": 2}], ids=["padding", "dilation", "stride"]
)
def test_a_convolution_after_a_flattening(options: dict[str, int]) -> None:
    model = Reshaped(**options).eval()
    program = compile(model, torch.zeros(1, 3, 4, 4), threads=1)
    assert isinstance(program, Program)
    x = torch.randn(2, 3, 4, 4)
    with torch.inference_mode():
        torch.testing.assert_close(Program(program.plan, threads=1)(x), model(x), rtol=1e-4, atol=1e-5)


class Formulas(nn.Module):
    """GELU as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.layers[0](x)
        x = first * 0.5 * (1.0 + torch.erf(first / math.sqrt(2.0)))
        second = self.layers[1](x)
        x = 0.5 * second * (1 + torch.tanh(math.sqrt(2 / math.pi) * (second + 0.044715 * torch.pow(second, 3))))
        third = self.layers[2](x)
        return third * 0.5 * (1 + torch.erf(third / 2))  # which is none


def test_formulas_of_gelu_are_activations() -> None:
    model = Formulas().eval()
    program = compile(model, torch.zeros(1, 4), threads=1)
    assert isinstance(program, Program)
    assert [o.label.split(" + ")[-1] for o in program.plan.operations[:2]] == ["gelu", "gelu_tanh"]
    assert not any("gelu" in o.label for o in program.plan.operations[2:])
    x = torch.randn(5, 4)
    with torch.inference_mode():
        torch.testing.assert_close(program(x), model(x), rtol=1e-5, atol=1e-6)
