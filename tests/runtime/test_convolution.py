"""Every form of the convolution against PyTorch's, in both layouts, sparse and dense."""

from math import inf
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from rvsm.runtime.execute.program import Program
from rvsm.runtime.kernels import jit
from rvsm.runtime.kernels.convolution import Convolution as Kernel
from rvsm.runtime.plan.operation import RELU, Activation
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Output, Plan, Weights
from rvsm.runtime.schedule import panels, taps
from rvsm.runtime.schedule.scheduler import schedule

CHOICES = st.sampled_from(["sparse", "dense", None])


def one_convolution(
    operation: Convolution, source: tuple[int, int, int], weights: np.ndarray, bias: np.ndarray
) -> Plan:
    """Return a plan of one convolution; a residual is a second input."""
    inputs = [source]
    if operation.residual is not None:
        inputs.append(Convolution.shape(operation, [source, residual_shape(operation, source)]))
    return Plan(tuple(inputs), (operation,), (Output(len(inputs)),), {0: Weights.of(weights)}, {0: bias})


def residual_shape(operation: Convolution, source: tuple[int, int, int]) -> tuple[int, int, int]:
    k, s, p, d = operation.kernel, operation.stride, operation.padding, operation.dilation
    sizes = [(source[i + 1] + 2 * p[i] - d[i] * (k[i] - 1) - 1) // s[i] + 1 for i in range(2)]
    return operation.channels, sizes[0], sizes[1]


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Convolution, tuple[int, int, int], float]:
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    depthwise = draw(st.integers(0, 5)) == 0
    inside = draw(st.integers(1, 9))
    channels_in = groups * inside
    channels = groups * draw(st.integers(1, 9))
    if depthwise:
        groups, channels = channels_in, channels_in * draw(st.integers(1, 2))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    least = [max(1, dilation[k] * (kernel[k] - 1) + 1 - 2 * padding[k]) for k in range(2)]
    height, width = (least[k] + draw(st.integers(0, 18)) for k in range(2))
    operation = Convolution(
        name="layer", source=0, residual=1 if draw(st.booleans()) else None, channels=channels, kernel=kernel,
        stride=stride, padding=padding, dilation=dilation, groups=groups,
        activation=draw(st.sampled_from([Activation(), RELU, Activation("silu"), Activation("leaky", 0.2)])),
    )  # fmt: skip
    return operation, (channels_in, height, width), draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))


@settings(max_examples=120)
@given(
    case=convolutions(),
    choose=CHOICES,
    batch=st.sampled_from([1, 2, 15, 16, 19, 33]),
    threads=st.sampled_from([1, 2]),
    worth=st.sampled_from([0, panels.WORTH]),
    seed=st.integers(0, 1 << 30),
)
def test_like_pytorch(  # noqa: PLR0917
    case: tuple[Convolution, tuple[int, int, int], float],
    choose: str | None,
    batch: int,
    threads: int,
    worth: int,
    seed: int,
) -> None:
    """With every window copied to a panel, and with those that are large enough."""
    operation, source, sparsity = case
    rng = np.random.default_rng(seed)
    shape = operation.weight_shape([source])
    weights = (rng.standard_normal(shape) * (rng.random(shape) >= sparsity)).astype(np.float32)
    bias = rng.standard_normal(operation.channels).astype(np.float32)
    with patch.object(panels, "WORTH", worth):
        program = Program(one_convolution(operation, source, weights, bias), choose=choose, threads=threads).prepare()
    x = rng.standard_normal((batch, *source)).astype(np.float32)
    inputs = [torch.from_numpy(x)]
    expected = functional.conv2d(
        inputs[0].double(), torch.from_numpy(weights).double(), torch.from_numpy(bias).double(), operation.stride,
        operation.padding, operation.dilation, operation.groups,
    )  # fmt: skip
    if operation.residual is not None:
        inputs.append(torch.randn(expected.shape))
        expected = expected + inputs[1]
    expected = applied(operation.activation, expected)
    for _ in range(2):  # the second call finds the memory as the first has left it
        torch.testing.assert_close(program(*inputs).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("own", [0, 1 << 30])
@pytest.mark.parametrize("size", [2, 4, 5, 8, 16, 23])
@pytest.mark.parametrize("stride", [1, 2])
def test_threads_and_the_copies_of_single_images(
    own: int, size: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether threads have copies of their own, and whether they divide tiles or channels, nothing changes."""
    monkeypatch.setattr(taps, "OWN_COPIES", own)
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((24, 8, 3, 3)) * (rng.random((24, 8, 3, 3)) < 0.3)).astype(np.float32)
    bias = rng.standard_normal(24).astype(np.float32)
    operation = Convolution(
        name="layer", source=0, channels=24, kernel=(3, 3), padding=(1, 1), stride=(stride, stride)
    )  # fmt: skip
    x = torch.randn(1, 8, size, size)
    expected = functional.conv2d(x, torch.from_numpy(weights), torch.from_numpy(bias), stride, 1)
    for threads in (1, 2, 3):
        program = Program(one_convolution(operation, (8, size, size), weights, bias), choose="sparse", threads=threads)
        program.prepare()._single.chunk_seconds = 1.0
        for _ in range(3):
            torch.testing.assert_close(program(x), expected, rtol=1e-4, atol=1e-4)


def applied(activation: Activation, x: torch.Tensor) -> torch.Tensor:
    return {
        "none": lambda: x,
        "clamp": lambda: x.clamp(activation.a, activation.b),
        "silu": lambda: functional.silu(x),
        "leaky": lambda: functional.leaky_relu(x, activation.a),
    }[activation.name]()


@pytest.mark.parametrize("block", [2, 4])
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("channels", [16, 18, 21])
def test_channels_that_share_a_pattern_are_computed_together(block: int, batch: int, channels: int) -> None:
    rng = np.random.default_rng(0)
    pattern = rng.random((-(-channels // block), 6, 3, 3)) < 0.3
    order = rng.permutation(channels)  # blocks are found wherever their channels are
    mask = np.repeat(pattern, block, axis=0)[:channels][order]
    weights = (rng.standard_normal(mask.shape) * mask).astype(np.float32)
    operation = Convolution(name="layer", source=0, channels=channels, kernel=(3, 3), padding=(1, 1), activation=RELU)
    bias = rng.standard_normal(channels).astype(np.float32)
    program = Program(one_convolution(operation, (6, 9, 7), weights, bias), choose="sparse", threads=1)
    x = torch.randn(batch, 6, 9, 7)
    expected = functional.conv2d(x, torch.from_numpy(weights), torch.from_numpy(bias), padding=1).relu()
    torch.testing.assert_close(program(x), expected, rtol=1e-4, atol=1e-4)
    assert f"× {block}" in program.explain(batch).rows[0].kernel


@pytest.mark.parametrize("batch", [1, 16])
def test_nan_and_infinity_stay_where_pytorch_has_them(batch: int) -> None:
    weights = np.ones((4, 1, 3, 3), dtype=np.float32)
    operation = Convolution(name="layer", source=0, channels=4, kernel=(3, 3), padding=(1, 1), activation=RELU)
    program = Program(one_convolution(operation, (1, 8, 8), weights, np.zeros(4, np.float32)), threads=1)
    x = torch.randn(batch, 1, 8, 8)
    x[0, 0, 2, 3], x[-1, 0, 6, 6] = torch.nan, torch.inf
    expected = functional.conv2d(x, torch.from_numpy(weights), padding=1).relu()
    torch.testing.assert_close(program(x), expected, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_a_large_layer_in_several_passes() -> None:
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((40, 300, 3, 3)) * (rng.random((40, 300, 3, 3)) < 0.1)).astype(np.float32)
    bias = rng.standard_normal(40).astype(np.float32)
    operation = Convolution(
        name="layer", source=0, residual=1, channels=40, kernel=(3, 3), padding=(1, 1),
        activation=Activation("clamp", -inf, 6.0),
    )  # fmt: skip
    plan = one_convolution(operation, (300, 8, 8), weights, bias)
    x, r = torch.randn(18, 300, 8, 8), torch.randn(18, 40, 8, 8)
    expected = (functional.conv2d(x, torch.from_numpy(weights), torch.from_numpy(bias), padding=1) + r).clamp(max=6)
    for threads in (1, 2):
        program = Program(plan, choose="sparse", threads=threads)
        torch.testing.assert_close(program(x, r), expected, rtol=1e-4, atol=1e-3)
        assert "passes" in program.explain().rows[0].kernel


@pytest.mark.parametrize(("size", "kernel"), [((1, 197), 1), ((1, 128), 1), ((9, 11), 3)])
@pytest.mark.parametrize("block", [1, 4])
def test_panels(size: tuple[int, int], kernel: int, block: int) -> None:
    """Wide layers copy their windows: sizes that are bad for caches, with smaller tiles at the end, on all threads."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((64, 24, kernel, kernel)) * np.repeat(
        rng.random((64 // block, 24, kernel, kernel)) < 0.3, block, 0
    )
    weights, bias = weights.astype(np.float32), rng.standard_normal(64).astype(np.float32)
    operation = Convolution(name="layer", source=0, channels=64, kernel=(kernel, kernel), padding=(kernel // 2,) * 2)
    plan = one_convolution(operation, (24, *size), weights, bias)
    for threads in (1, 2, 3):
        program = Program(plan, choose="sparse", threads=threads).prepare()
        program._single.chunk_seconds = program._batch.chunk_seconds = 1.0
        for batch in (1, 8, 19):
            x = torch.randn(batch, 24, *size)
            expected = functional.conv2d(x, torch.from_numpy(weights), torch.from_numpy(bias), padding=kernel // 2)
            for _ in range(5):
                torch.testing.assert_close(program(x), expected, rtol=1e-4, atol=1e-4)
    steps = schedule(plan, images=True, threads=2).steps
    assert any(step.variant.panel_bytes for step in steps if isinstance(step.variant, Kernel))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("choose", ["sparse", "dense"])
def test_vectors_of_other_cpus(lanes: int, choose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of every CPU on this one: LLVM divides vectors that are too wide."""
    monkeypatch.setattr(jit._compiler(), "machine", jit.Machine(lanes, 2 * lanes, "another"))
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((10, 7, 3, 3)) * (rng.random((10, 7, 3, 3)) < 0.4)).astype(np.float32)
    bias = rng.standard_normal(10).astype(np.float32)
    for stride in ((1, 1), (2, 2)):
        operation = Convolution(
            name="layer", source=0, channels=10, kernel=(3, 3), padding=(1, 1), stride=stride,
            activation=Activation("gelu"),
        )  # fmt: skip
        program = Program(one_convolution(operation, (7, 11, 9), weights, bias), choose=choose, threads=1)
        for batch in (1, lanes, 2 * lanes + 1):
            x = torch.randn(batch, 7, 11, 9)
            expected = functional.conv2d(x, torch.from_numpy(weights), torch.from_numpy(bias), stride, 1)
            torch.testing.assert_close(program(x), functional.gelu(expected), rtol=1e-4, atol=1e-4)
