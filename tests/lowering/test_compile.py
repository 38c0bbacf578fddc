"""rvsm.compile: whole networks against PyTorch, whatever is in them."""

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import rvsm.runtime
from rvsm.lowering import MixedProgram, compile
from rvsm.models import MODELS
from rvsm.runtime import Program


def randomized(model: nn.Module, sparsity: float = 0.9) -> nn.Module:
    """Zero most weights, and give batch norm something to do."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and module.weight.numel() > 100:
            module.weight.data *= torch.rand_like(module.weight) > sparsity
            module.weight.data /= (1 - sparsity) ** 0.5
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
    return model.eval()


def agree(
    program: Program | MixedProgram, model: nn.Module, *shape: int, batches: tuple[int, ...] = (1, 3, 16, 18)
) -> None:
    for batch in batches:
        x = torch.randn(batch, *shape)
        with torch.inference_mode():
            expected = model(x)
        results = program(x)
        for result, wanted in zip(
            results if isinstance(results, tuple) else (results,),
            expected if isinstance(expected, tuple) else (expected,),
            strict=True,
        ):
            assert result.shape == wanted.shape
            assert (result - wanted).abs().max() <= 1e-4 * wanted.abs().max() + 1e-6


SMALL = {"resnet18": {"width": 0.25}, "vgg16": {"width": 0.25}}


@pytest.mark.parametrize("name", MODELS)
def test_every_network_of_ours(name: str, tmp_path: Path, decompositions: list[object]) -> None:
    parameters = inspect.signature(MODELS[name]).parameters
    size = parameters["size"].default if "size" in parameters else 32
    shape = (parameters["channels"].default, size, size)
    model = randomized(MODELS[name](**SMALL.get(name, {})))
    program = compile(model, torch.zeros(1, *shape), threads=1)
    assert not decompositions, "our networks are traced once"
    agree(program, model, *shape)
    if isinstance(program, Program):
        program.save(tmp_path / "model.rvsm")
        agree(rvsm.runtime.load(tmp_path / "model.rvsm", threads=1), model, *shape)


class Branches(nn.Module):
    """Two branches, concatenated; squeeze and excitation; a long way round."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, stride=2, padding=1)
        self.left = nn.Sequential(nn.Conv2d(12, 8, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.right = nn.Sequential(nn.Conv2d(12, 8, 5, padding=2, groups=4), nn.GELU(), nn.BatchNorm2d(8))
        self.squeeze = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 16), nn.Sigmoid())
        self.depth = nn.Conv2d(16, 16, 3, padding=2, dilation=2, groups=16)
        self.head = nn.Linear(16 * 9, 7)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.hardswish(self.stem(x))
        both = torch.cat([self.left(x), self.right(x)], dim=1)
        gate = self.squeeze(both.mean((2, 3))).view(x.shape[0], 16, 1, 1)
        both = functional.leaky_relu(self.depth(both * gate) + both, 0.1)
        pooled = functional.adaptive_avg_pool2d(functional.avg_pool2d(both, 3, 2, 1), 3)
        return self.head(functional.dropout(torch.flatten(pooled, 1), training=self.training)), both


def test_branches_and_several_outputs() -> None:
    model = randomized(Branches(), 0.5)
    program = compile(model, torch.zeros(2, 3, 13, 11), threads=1)
    assert isinstance(program, Program)
    agree(program, model, 3, 13, 11)


class Dense(nn.Module):
    """Batch norm before convolutions, and everything before kept, as in DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(4 + 3 * k) for k in range(4))
        self.convolutions = nn.ModuleList(nn.Conv2d(4 + 3 * k, 3, 3, padding=1) for k in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            x = torch.cat([x, convolution(functional.relu(norm(x)))], 1)
        return x


class Arithmetic(nn.Module):
    """Numbers and constants, channel by channel; the input itself in a sum; one value twice."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(1, 4, 1, 1))
        self.scale = nn.Parameter(torch.rand(4, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = (x - self.mean) / self.scale * 2 + 1
        z = functional.relu6(y) + x
        return torch.tanh(z + z) * functional.hardsigmoid(-y) + functional.hardtanh(x, -0.3, 0.4).clamp(min=0.1)


class Shortcut(nn.Module):
    """A sum of two convolutions, an activation of the sum, and the sum used again."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(4, 4, k, padding=k // 2) for k in (3, 1, 5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x) + self.b(x)
        return functional.silu(self.c(functional.relu(y)) + y) + x


class Tower(nn.Sequential):
    """MobileNet's blocks: 1×1, depthwise with a stride, 1×1."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(4, 24, 1, bias=False), nn.BatchNorm2d(24), nn.Hardswish(),
            nn.Conv2d(24, 24, 5, stride=2, padding=2, groups=24, bias=False), nn.BatchNorm2d(24), nn.ReLU6(),
            nn.Conv2d(24, 10, 1, bias=False), nn.BatchNorm2d(10), nn.MaxPool2d(3, 2, 1, ceil_mode=True),
            nn.Flatten(), nn.Dropout(), nn.LazyLinear(6), nn.BatchNorm1d(6), nn.Tanh(),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("build", "sparsity"),
    [(Arithmetic, 0.0), *((build, sparsity) for build in (Dense, Shortcut, Tower) for sparsity in (0.0, 0.7, 1.0))],
)
def test_networks_by_somebody_else(build: Callable[[], nn.Module], sparsity: float) -> None:
    model = build().eval()
    model(torch.zeros(2, 4, 9, 10))
    randomized(model, 0.5 if sparsity else 0.0)
    if sparsity == 1.0:
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.weight.data.zero_()
    program = compile(model, torch.zeros(1, 4, 9, 10), threads=1)
    assert isinstance(program, Program)
    agree(program, model, 4, 9, 10)


@settings(max_examples=12)
@given(kernel=st.tuples(st.integers(1, 6), st.integers(1, 6)), dilation=st.integers(1, 2), size=st.integers(6, 14))
def test_same_padding(kernel: tuple[int, int], dilation: int, size: int) -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, kernel, padding="same", dilation=dilation)).eval()
    agree(compile(model, torch.zeros(2, 2, size, size + 1), threads=1), model, 2, size, size + 1, batches=(1, 16))


class Attention(nn.Module):
    """Convolutions around something that the runtime does not have, with a way past it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 5, 3)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.before(x))
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        weights = torch.cumprod(tokens @ tokens.transpose(1, 2) / 8**0.5, -1)
        y = (weights @ tokens).transpose(1, 2).reshape(x.shape)
        return functional.relu(self.after(x + y))


def test_what_the_runtime_does_not_have_runs_in_pytorch(tmp_path: Path) -> None:
    model = randomized(Attention(), 0.5)
    program = compile(model, torch.zeros(1, 3, 6, 7), threads=1)
    assert isinstance(program, MixedProgram)
    agree(program, model, 3, 6, 7)
    assert any("cumprod" in name for name in program.outside)
    assert "cumprod" in str(program.explain())
    assert {row.name for row in program.explain().rows} >= {"before", "after"}
    with pytest.raises(ValueError, match=r"cannot be saved, because it needs PyTorch for .*cumprod"):
        program.save(tmp_path / "model.rvsm")
    assert isinstance(program(np.zeros((2, 3, 6, 7), dtype=np.float32)), np.ndarray)
    with pytest.raises(ValueError, match="must have the shape"):
        program(torch.zeros(2, 3, 6, 8))


class OneImage(nn.Module):
    """Works for a batch of one only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3), nn.Linear(4 * 36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumprod(self.second(self.first(x).reshape(1, 144)), 1)


def test_a_model_for_one_image_is_called_for_each() -> None:
    model = OneImage().eval()
    program = compile(model, torch.randn(1, 2, 8, 8), threads=1)
    x = torch.randn(5, 2, 8, 8)
    with torch.inference_mode():
        expected = torch.cat([model(x[k : k + 1]) for k in range(5)])
    torch.testing.assert_close(program(x), expected, rtol=1e-4, atol=1e-5)


def test_several_inputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(1, 4, 1)

        def forward(self, x: Tensor, y: Tensor, unused: Tensor) -> tuple[Tensor, Tensor]:
            return self.b(y), self.a(x) * self.b(y)

    model = Two().eval()
    program = compile(model, (torch.zeros(1, 2, 5, 5), torch.zeros(1, 1, 5, 5), torch.zeros(1, 3)), threads=1)
    x, y, z = torch.randn(9, 2, 5, 5), torch.randn(9, 1, 5, 5), torch.randn(9, 3)
    with torch.inference_mode():
        for result, expected in zip(program(x, y, z), model(x, y, z), strict=True):
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_other_precisions_run_in_pytorch() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU()).double().eval()
    program = compile(model, torch.zeros(2, 2, 6, 6, dtype=torch.float64), threads=1)
    assert isinstance(program, MixedProgram)
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(program(x), model(x))


def test_the_model_is_left_alone_and_later_changes_do_not_matter(tmp_path: Path) -> None:
    model = randomized(MODELS["convnet"]())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    program = compile(model, torch.zeros(1, 1, 8, 8), threads=1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    x = torch.randn(4, 1, 8, 8)
    first = program(x)
    for parameter in model.parameters():
        parameter.data.zero_()
    assert torch.equal(program(x), first)
    assert isinstance(program, Program)
    program.save(tmp_path / "model.rvsm")
    assert torch.allclose(rvsm.runtime.load(tmp_path / "model.rvsm", threads=1)(x), first, rtol=1e-4, atol=1e-5)


class Forms(nn.Module):
    """Results in other forms: the input itself, the same value twice, a tuple of one."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.layer = nn.Conv2d(2, 3, 3)
        self.form = form

    def forward(self, x: Tensor) -> object:
        y = self.layer(x)
        return {"input": (x, y), "twice": (y, y), "one": (y,), "list": [y, y.relu()]}[self.form]


@pytest.mark.parametrize("form", ["input", "twice", "one", "list"])
def test_forms_of_results(form: str) -> None:
    model = Forms(form).eval()
    program = compile(model, torch.zeros(2, 2, 5, 5), threads=1)
    x = torch.randn(3, 2, 5, 5)
    with torch.inference_mode():
        expected = model(x)
    results = program(x)
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)


def test_a_model_without_anything_for_the_runtime() -> None:
    for model in (nn.Identity(), nn.Softmax(1)):
        program = compile(model.eval(), torch.zeros(2, 3), threads=1)
        x = torch.randn(4, 3)
        torch.testing.assert_close(program(x), model(x))
        assert str(program.explain())


def test_what_cannot_be_compiled_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Dropout())
    with pytest.raises(ValueError, match=r"in train mode \(the model itself\); call model\.eval\(\) first"):
        compile(model, torch.zeros(1, 1, 4, 4))
    model.eval()[1].train()
    with pytest.raises(ValueError, match=r"in train mode \(1\)"):
        compile(model, torch.zeros(1, 1, 4, 4))
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module but is a function"):
        compile(lambda x: x, torch.zeros(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a tensor, or a tuple of tensors"):
        compile(model.eval(), "x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must have the same batch size, at least 1"):
        compile(model.eval(), torch.zeros(0, 1, 4, 4))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x.relu()


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu() if x.sum() > 0 else x


class ForBatchesOfTwo(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ x.T @ torch.ones(2, 3)


def test_models_that_do_other_things_are_refused_in_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="changes its buffer 'calls' when it is called"):
        compile(Counting().eval(), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"torch\.export cannot capture Branching: .* depends on the values"):
        compile(Branching().eval(), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="ForBatchesOfTwo: it works for one batch size or length only"):
        compile(ForBatchesOfTwo().eval(), torch.zeros(2, 3))
    assert capfd.readouterr() == ("", "")
