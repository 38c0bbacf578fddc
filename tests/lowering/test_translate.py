"""What may become an operation of the runtime and what may not."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import rvsm.runtime
from rvsm.lowering import MixedProgram, compile
from rvsm.runtime import Program


def agree(program: Program | MixedProgram, model: nn.Module, *shape: int, batches: tuple[int, ...]) -> None:
    for batch in batches:
        x = torch.randn(batch, *shape)
        with torch.inference_mode():
            torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5)


class Gate(nn.Module):
    """A map times numbers that are computed from parameters, for a batch of one."""

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


class Frozen(nn.Module):
    """Inputs that are normalized by buffers, and a batch norm of buffers after a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3)
        for name, channels in (("input", 3), ("output", 8)):
            self.register_buffer(f"{name}_mean", torch.randn(channels))
            self.register_buffer(f"{name}_variance", torch.rand(channels) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.input_mean[:, None, None]) / self.input_variance.sqrt()[:, None, None]
        scale = (self.output_variance + 1e-5).rsqrt().reshape(1, -1, 1, 1)
        return self.layer(x) * scale - self.output_mean.reshape(1, -1, 1, 1) * scale


@pytest.mark.parametrize("build", [Gate, Standardized, Frozen])
def test_what_follows_from_parameters_alone_is_computed_once(build: type[nn.Module]) -> None:
    model = build().eval()
    program = compile(model, torch.zeros(1, 3, 6, 6), threads=1)
    assert isinstance(program, Program)
    agree(program, model, 3, 6, 6, batches=(1, 4, 16))


class Noisy(nn.Module):
    """Random numbers as large as a parameter: new ones in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Conv2d(3, 8, 3), nn.Parameter(torch.ones(1, 8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * torch.rand_like(self.scale)


def test_random_numbers_are_not_computed_once_for_all() -> None:
    program = compile(Noisy().eval(), torch.zeros(1, 3, 6, 6), threads=1)
    assert isinstance(program, MixedProgram)
    x = torch.randn(4, 3, 6, 6)
    assert not torch.equal(program(x), program(x))


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


class Permuted(nn.Module):
    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(*self.dims)


class Swapped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, -1)


class Mean(nn.Module):
    def __init__(self, *dims: int, keep: bool = False) -> None:
        super().__init__()
        self.dims, self.keep = dims, keep

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(self.dims, keepdim=self.keep)


class Feed(nn.Module):
    """A transformer's feed-forward part: a way past it, a number for each feature, two halves side by side."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, 24), nn.Linear(24, features)
        self.scale = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.scale * self.second(functional.gelu(self.first(x)))
        return torch.cat([y, functional.silu(x)], -1)


LINE = (4, 37)
NATIVE = {
    "a network of lines": (
        nn.Sequential(
            nn.Conv1d(4, 8, 5, stride=2, padding=2),
            nn.BatchNorm1d(8),
            nn.PReLU(),
            nn.MaxPool1d(3, 2, 1),
            nn.Conv1d(8, 8, 4, padding="same"),
            nn.ReLU(),
            nn.Conv1d(8, 8, 3, dilation=2, groups=2),
            nn.AvgPool1d(2),
            nn.Flatten(),
            nn.Linear(24, 3),
        ),
        LINE,
    ),
    "a line comes out": (nn.Conv1d(4, 3, 7, padding=3), LINE),
    "adaptive pooling of lines": (
        nn.Sequential(nn.Conv1d(4, 8, 3), nn.AdaptiveMaxPool1d(5), nn.AdaptiveAvgPool1d(2)),
        LINE,
    ),
    "the mean of a line": (nn.Sequential(nn.Conv1d(4, 8, 3), Mean(2), nn.Linear(8, 2)), LINE),
    "tokens": (nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 5)), (13, 9)),
    "tokens past each other": (Feed(9), (13, 9)),
    "an activation before tokens": (nn.Sequential(nn.SiLU(), nn.Linear(9, 16)), (13, 9)),
    "the mean of tokens": (nn.Sequential(nn.Linear(9, 16), Mean(1), nn.Linear(16, 5)), (13, 9)),
    "the mean of tokens as a token": (nn.Sequential(nn.Linear(9, 16), Mean(1, keep=True), nn.Linear(16, 5)), (13, 9)),
    "tokens into a line": (nn.Sequential(nn.Linear(9, 16), Permuted(0, 2, 1), nn.Conv1d(16, 5, 3)), (13, 9)),
    "a line into tokens": (nn.Sequential(nn.Conv1d(4, 8, 3), Swapped(), nn.Linear(8, 5)), LINE),
    "tokens that come as a line": (nn.Sequential(Swapped(), nn.ReLU(), nn.Linear(4, 5)), LINE),
    "a map with the channels last": (
        nn.Sequential(nn.Conv2d(3, 8, 3), Permuted(0, 2, 3, 1), Feed(8), Permuted(0, 3, 1, 2), nn.Conv2d(16, 2, 1)),
        (3, 6, 7),
    ),
    "probabilities": (nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 5), nn.Softmax(-1)), (9,)),
    "logarithms of probabilities": (nn.Sequential(nn.Linear(9, 5), nn.LogSoftmax(1)), (9,)),
    "probabilities of tokens": (nn.Sequential(nn.Linear(9, 16), nn.Softmax(2), nn.Linear(16, 5)), (13, 9)),
    "probabilities at each position": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.LogSoftmax(1)), (3, 6, 7)),
    "tokens flattened": (nn.Sequential(nn.Linear(9, 4), nn.Flatten(), nn.Linear(52, 5)), (13, 9)),
    "rows and columns exchanged": (nn.Sequential(nn.Conv2d(3, 8, 3), Permuted(0, 1, 3, 2)), (3, 6, 7)),
    "mixing tokens, then features": (nn.Sequential(Swapped(), nn.Linear(13, 13), Swapped(), Feed(9)), (13, 9)),
    "a linear layer on a line": (nn.Sequential(nn.Conv1d(4, 8, 3), nn.Linear(35, 2)), LINE),
    "batch norm of tokens": (nn.Sequential(nn.Linear(9, 16), nn.BatchNorm1d(13)), (13, 9)),
    "slopes for each channel": (nn.Sequential(nn.Conv1d(4, 8, 3), nn.PReLU(8)), LINE),
    "the mean of some positions": (nn.Sequential(nn.Conv2d(3, 8, 3), Mean(3)), (3, 6, 7)),
    "transposed convolutions": (nn.ConvTranspose2d(3, 4, 2, 2), (3, 6, 7)),
    "a map that comes with the channels last": (nn.Linear(8, 5), (6, 7, 8)),
}


@pytest.mark.parametrize("name", NATIVE)
def test_lines_and_tokens_are_native(name: str, tmp_path: Path) -> None:
    model, shape = NATIVE[name]
    program = compile(model.eval(), torch.zeros(1, *shape), threads=1)
    assert isinstance(program, Program), program.outside
    agree(program, model, *shape, batches=(1, 3, 17))
    program.save(tmp_path / "model.rvsm")
    agree(rvsm.runtime.load(tmp_path / "model.rvsm", threads=2), model, *shape, batches=(1, 3, 17))
    assert rvsm.runtime.describe(tmp_path / "model.rvsm").inputs == (shape,)


class Unbatched(nn.Module):
    """What has no batch, in places where a batch of lines could be meant."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(self.layer(x[0])[None][0], 3, 1, 1)[None]


NOT_NATIVE = {
    "overlapping windows of volumes": (nn.ConvTranspose3d(1, 3, 3), (1, 4, 4, 4)),
    "a convolution without a batch": (Unbatched(), (4, 6, 7)),
}


@pytest.mark.parametrize("name", NOT_NATIVE)
def test_other_orders_stay_in_pytorch(name: str) -> None:
    model, shape = NOT_NATIVE[name]
    program = compile(model.eval(), torch.zeros(1, *shape), threads=1)
    assert isinstance(program, MixedProgram)
    agree(program, model, *shape, batches=(1,) if name.endswith("without a batch") else (1, 3, 17))


def test_a_block_of_a_transformer() -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True).eval()
    program = compile(model, torch.zeros(2, 7, 16), threads=1)
    assert {"linear1", "linear2"} <= {row.name for row in program.explain().rows}
    agree(program, model, 7, 16, batches=(1, 3, 17))
