"""Pooling, sums, products, concatenation, flattening and activations against PyTorch's."""

import time
from collections.abc import Callable
from math import inf

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from rvsm.runtime.execute.program import Program
from rvsm.runtime.plan.operation import ACTIVATIONS, Activation, Operation
from rvsm.runtime.plan.operations import (
    AdaptivePooling,
    Concatenation,
    Convolution,
    Flattening,
    Pointwise,
    Pooling,
    Softmax,
)
from rvsm.runtime.plan.plan import Output, Plan, Weights

BATCHES = st.sampled_from([1, 3, 16, 21])
SIZES = st.tuples(st.integers(1, 7), st.integers(1, 20), st.integers(1, 20))


def play(operation: Operation, *inputs: Tensor, axes: str = "chw") -> Tensor:
    plan = Plan(tuple(tuple(x.shape[1:]) for x in inputs), (operation,), (Output(len(inputs), axes),), {}, {})
    program = Program(plan, threads=1)
    program(*inputs)
    return program(*inputs)


@settings(max_examples=60)
@given(
    shape=SIZES,
    batch=BATCHES,
    window=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2)),
    ceil=st.booleans(),
    mode=st.sampled_from(["max", "mean", "mean of all"]),
)
def test_pooling(
    shape: tuple[int, int, int], batch: int, window: tuple[int, int, int, int], ceil: bool, mode: str
) -> None:
    kernel, stride, padding, dilation = window
    padded, mode = mode == "mean of all", mode.split(maxsplit=1)[0]
    dilation = dilation if mode == "max" else 1
    assume(2 * padding <= kernel and min(shape[1:]) + 2 * padding > dilation * (kernel - 1))
    x = torch.randn(batch, *shape)
    if mode == "max":
        expected = functional.max_pool2d(x, kernel, stride, padding, dilation, ceil)
    else:
        expected = functional.avg_pool2d(x, kernel, stride, padding, ceil, padded)
    two = [(value, value) for value in (kernel, stride, padding, dilation)]
    operation = Pooling(
        name="pool", source=0, mode=mode, kernel=two[0], stride=two[1], padding=two[2], dilation=two[3], ceil=ceil,
        padded=padded,
    )  # fmt: skip
    torch.testing.assert_close(play(operation, x), expected)


@settings(max_examples=200)
@given(
    size=st.integers(1, 12),
    window=st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)),
    padded=st.booleans(),
)
def test_windows_are_the_positions_inside(size: int, window: tuple[int, int, int, int], padded: bool) -> None:
    kernel, stride, padding, dilation = ((value, value) for value in window)
    operation = Pooling(
        name="pool", source=0, mode="mean", kernel=kernel, stride=stride, padding=padding, dilation=dilation,
        padded=padded,
    )  # fmt: skip
    for k, (first, number, part) in enumerate(operation.windows(size, 8, 0).tolist()):
        start = k * stride[0] - padding[0]
        inside = [x for x in range(start, start + dilation[0] * kernel[0], dilation[0]) if 0 <= x < size]
        assert (first, number) == (inside[0] if inside else 0, len(inside))
        assert part == (min(kernel[0], size + padding[0] - start) if padded else len(inside))


def test_windows_of_a_large_map_take_no_time() -> None:
    operation = Pooling(name="pool", source=0, mode="max", kernel=(4096, 1), stride=(1, 1), padding=(1024, 0))
    begin = time.process_time()
    assert operation.windows(1 << 22, (1 << 22) - 2047, 0)[1024].tolist() == [0, 4096, 4096]
    assert time.process_time() - begin < 5


@settings(max_examples=40)
@given(shape=SIZES, batch=BATCHES, size=st.tuples(st.integers(1, 8), st.integers(1, 8)))
def test_adaptive_pooling(shape: tuple[int, int, int], batch: int, size: tuple[int, int]) -> None:
    x = torch.randn(batch, *shape)
    operation = AdaptivePooling(name="pool", source=0, mode="mean", size=size)
    torch.testing.assert_close(play(operation, x), functional.adaptive_avg_pool2d(x, size))
    operation = AdaptivePooling(name="pool", source=0, mode="max", size=size)
    torch.testing.assert_close(play(operation, x), functional.adaptive_max_pool2d(x, size))


def test_the_maximum_of_a_window_with_nan_is_nan() -> None:
    x = torch.randn(17, 2, 6, 6)
    x[:, 0, 1, 1] = x[:, 1, 4, 5] = torch.nan
    operation = Pooling(name="pool", source=0, mode="max", kernel=(2, 2), stride=(2, 2))
    torch.testing.assert_close(play(operation, x), functional.max_pool2d(x, 2), equal_nan=True)


@settings(max_examples=40)
@given(shape=SIZES, batch=BATCHES, operation=st.sampled_from(["add", "mul"]), broadcast=st.booleans())
def test_sums_and_products(shape: tuple[int, int, int], batch: int, operation: str, broadcast: bool) -> None:
    a = torch.randn(batch, *shape)
    b = torch.randn(batch, shape[0], 1, 1) if broadcast else torch.randn(batch, *shape)
    result = play(Pointwise(name="two", operation=operation, a=0, b=1, activation=Activation("clamp", -1.0, 1.0)), a, b)
    torch.testing.assert_close(result, ((a + b) if operation == "add" else a * b).clamp(-1, 1))


@settings(max_examples=30)
@given(
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    channels=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    batch=BATCHES,
)
def test_concatenation_and_flattening(size: tuple[int, int], channels: list[int], batch: int) -> None:
    parts = [torch.randn(batch, c, *size) for c in channels]
    whole = torch.cat(parts, 1)
    assert torch.equal(play(Concatenation(name="cat", parts=tuple(range(len(parts)))), *parts), whole)
    assert torch.equal(play(Flattening(name="flat", source=0), whole, axes="c"), whole.flatten(1))


@settings(max_examples=60)
@given(
    shape=st.tuples(st.sampled_from([1, 2, 10, 1000]), st.integers(1, 4), st.integers(1, 20)),
    batch=BATCHES,
    log=st.booleans(),
    scale=st.sampled_from([0.1, 10.0, 1e4]),
)
def test_softmax(shape: tuple[int, int, int], batch: int, log: bool, scale: float) -> None:
    x = scale * torch.randn(batch, *shape)
    expected = (functional.log_softmax if log else functional.softmax)(x.double(), 1).float()
    result = play(Softmax(name="softmax", source=0, log=log), x)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


def test_softmax_of_many_equal_channels_is_exact() -> None:
    x = torch.zeros(17, 50_000, 1, 1)
    result = play(Softmax(name="softmax", source=0), x)
    torch.testing.assert_close(result, torch.full_like(x, 1 / 50_000), rtol=1e-6, atol=0)


def test_softmax_of_nan_and_infinity() -> None:
    x = torch.randn(17, 5, 2, 3)
    x[3, 2, 1, 1] = torch.nan
    x[4, :, 0, 0] = torch.inf
    x[5, 1, 0, 0] = -torch.inf
    for log, reference in ((False, functional.softmax), (True, functional.log_softmax)):
        result = play(Softmax(name="softmax", source=0, log=log), x)
        torch.testing.assert_close(result, reference(x, 1), rtol=1e-6, atol=1e-6, equal_nan=True)


REFERENCES: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "clamp": lambda x: x.clamp(-0.5, 2.0),
    "leaky": lambda x: functional.leaky_relu(x, -0.5),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "line": lambda x: 2 - x / 2,
    "elu": lambda x: torch.where(x > 0, 2 * x, -0.5 * x.expm1()),
    "softplus": functional.softplus,
    "mish": functional.mish,
    "erf": torch.erf,
    "exp": torch.exp,
    "log": torch.log,
    "square": torch.square,
    "cube": lambda x: x**3,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "power": lambda x: x**-0.5,
    "abs": torch.abs,
    "equal": lambda x: (x == -0.5).double(),
    "above": lambda x: (x > -0.5).double(),
    "below": lambda x: (x < -0.5).double(),
    "at_least": lambda x: (x >= -0.5).double(),
    "at_most": lambda x: (x <= -0.5).double(),
    "choose": lambda x: torch.where(x != 0, -0.5, 2.0).double(),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("batch", [1, 16])
def test_activations(name: str, batch: int) -> None:
    a, b = -0.5, 2.0
    far = torch.cat([torch.linspace(-12, 12, 4001), torch.tensor([-100.0, -50.0, 50.0, 100.0, 0.0, torch.nan])])
    x = far.expand(batch, 1, 1, -1)
    result = play(Pointwise(name=name, operation="none", a=0, activation=Activation(name, a, b)), x)
    expected = REFERENCES[name](x.double()).float()
    torch.testing.assert_close(result, expected, rtol=2e-6, atol=4e-7, equal_nan=True)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown activation 'swash'; choose from none, clamp"):
        Activation("swash")


@pytest.mark.parametrize("batch", [1, 16])
def test_borders_stay_zero_when_memory_serves_again(batch: int) -> None:
    """A sigmoid is 0.5 at zero: if it were applied to a border, the next map there would not have zeros around it."""
    operations: list[Operation] = [
        Pointwise(name="s", operation="none", a=k, activation=Activation("sigmoid")) for k in range(6)
    ]
    operations.append(Pooling(name="p", source=6, mode="mean", kernel=(3, 3), stride=(1, 1), padding=(1, 1)))
    plan = Plan(((2, 5, 5),), tuple(operations), (Output(7),), {}, {})
    x = torch.randn(batch, 2, 5, 5)
    expected = x
    for _ in range(6):
        expected = expected.sigmoid()
    program = Program(plan, threads=1)
    for _ in range(3):
        torch.testing.assert_close(program(x), functional.avg_pool2d(expected, 3, 1, 1))


def test_numpy_in_numpy_out_and_torch_in_torch_out() -> None:
    plan = Plan(
        ((2, 3, 3),), (Pointwise(name="r", operation="none", a=0, activation=Activation("clamp", 0.0, inf)),),
        (Output(1),), {}, {},
    )  # fmt: skip
    program = Program(plan, threads=1)
    assert isinstance(program(np.zeros((2, 2, 3, 3))), np.ndarray)
    assert isinstance(program(torch.zeros(2, 2, 3, 3)), Tensor)
    assert program(np.zeros((0, 2, 3, 3))).shape == (0, 2, 3, 3)
    x = torch.randn(3, 2, 3, 3)
    assert torch.equal(program(x.to(memory_format=torch.channels_last)), program(x))
    with pytest.raises(ValueError, match=r"must have the shape \(batch, 2, 3, 3\) but has \(2, 3, 3\)"):
        program(np.zeros((2, 3, 3)))
    with pytest.raises(ValueError, match="takes 1 inputs but 2"):
        program(np.zeros((1, 2, 3, 3)), np.zeros((1, 2, 3, 3)))
    with pytest.raises(TypeError, match="must hold numbers"):
        program(np.full((1, 2, 3, 3), "a"))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_meet_only_zeros_vanish_in_the_sparse_kernel(bad: float) -> None:
    """As docs/runtime.md says: the sparse kernel does not multiply by zero; PyTorch does, and gives NaN."""
    weights = np.array([[0.0, 2.0], [1.0, 0.0]], dtype=np.float32)
    operation = Convolution(name="layer", source=0, channels=2, kernel=(1, 1))
    stored, bias = Weights.of(weights[:, :, None, None]), np.zeros(2, dtype=np.float32)
    plan = Plan(((2, 1, 1),), (operation,), (Output(1, "c"),), {0: stored}, {0: bias}, ("c",))
    for count in (1, 16):
        x = np.tile(np.array([bad, 3.0], dtype=np.float32), (count, 1))
        sparse, dense = (Program(plan, threads=1, choose=choose)(x) for choose in ("sparse", "dense"))
        assert (sparse[:, 0] == 6.0).all()
        np.testing.assert_array_equal(sparse[:, 1], x[:, 0])
        assert np.isnan(dense[:, 0]).all()
        assert torch.isnan(functional.linear(torch.from_numpy(x), torch.from_numpy(weights)))[:, 0].all()
