"""What may become an operation of the runtime and what may not."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rvsm.lowering import MixedProgram, compile
from rvsm.runtime import Program


def agree(program: Program | MixedProgram, model: nn.Module, *shape: int, batches: tuple[int, ...]) -> None:
    for batch in batches:
        x = torch.randn(batch, *shape)
        with torch.inference_mode():
            torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5)


class Gate(nn.Module):
    """A map times numbers that PyTorch computes from parameters, for a batch of one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3)
        self.gate = nn.Parameter(torch.randn(1, 8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * torch.sigmoid(self.gate)


class Standardized(nn.Module):
    """A convolution whose weights are standardized when it is called: they look like a batch of maps."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3, 3, 3))
        self.gain = nn.Parameter(torch.randn(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.weight.mean((1, 2, 3), keepdim=True)
        return functional.conv2d(x, torch.tanh((self.weight - mean) * self.gain)).relu()


@pytest.mark.parametrize(("build", "outside"), [(Gate, "sigmoid"), (Standardized, "tanh")])
def test_what_is_computed_from_parameters_is_no_batch_of_images(build: type[nn.Module], outside: str) -> None:
    model = build().eval()
    program = compile(model, torch.zeros(1, 3, 6, 6), threads=1)
    assert isinstance(program, MixedProgram)
    agree(program, model, 3, 6, 6, batches=(1, 4, 16))
    assert any(outside in name for name in program.outside)


class Beside(nn.Module):
    """A vector beside a map, which counts along the map's columns; works for single images only."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.vector = nn.Conv2d(3, 8, 1), nn.Linear(3, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x) + self.vector(x.mean((2, 3)))


def test_a_vector_beside_a_map_counts_along_columns() -> None:
    model = Beside().eval()
    agree(compile(model, torch.zeros(1, 3, 8, 8), threads=1), model, 3, 8, 8, batches=(1,))


def test_adaptive_maxima_are_native() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveMaxPool2d((2, 3)), nn.Flatten(), nn.Linear(24, 2)).eval()
    program = compile(model, torch.zeros(1, 3, 7, 8), threads=1)
    assert isinstance(program, Program)
    agree(program, model, 3, 7, 8, batches=(1, 16))


def test_places_of_adaptive_maxima_are_not() -> None:
    class Places(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            values, places = functional.adaptive_max_pool2d(x, 2, return_indices=True)
            return values + places

    program = compile(Places().eval(), torch.zeros(1, 3, 7, 8), threads=1)
    assert isinstance(program, MixedProgram)
    agree(program, Places(), 3, 7, 8, batches=(1, 5))
