"""Depthwise convolutions and pooling of single images, channel by channel, against PyTorch's."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rvsm.runtime.execute.program import Program
from rvsm.runtime.plan.operation import RELU, Operation
from rvsm.runtime.plan.operations import Convolution, Pooling
from rvsm.runtime.plan.plan import Output, Plan, Weights
from rvsm.runtime.schedule import windows

CHANNELS = 6


def programs(operation: Operation, sizes: tuple[int, int], weights: np.ndarray | None = None) -> list[Program]:
    """Return programs for several numbers of threads, whose second output is the input, the neighbour in memory."""
    known = {} if weights is None else {0: Weights.of(weights)}
    biases = {} if weights is None else {0: np.arange(len(weights), dtype=np.float32)}
    plan = Plan(((CHANNELS, *sizes),), (operation,), (Output(1, "chw"), Output(0, "chw")), known, biases)
    made = [Program(plan, threads=threads).prepare() for threads in (1, 2, 3)]
    for program in made:
        program._single.chunk_seconds = 1.0  # long enough for helpers
        assert "channel by channel" in str(program.explain(1))
    return made


def check(made: list[Program], x: Tensor, expected: Tensor) -> None:
    for program in made:
        for _ in range(2):
            y, same = program(x)
            torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
            assert torch.equal(same, x)


@pytest.mark.parametrize("width", [3, 7, 8, 14, 33])
def test_depthwise(width: int) -> None:
    for stride, padding, kernel, dilation, each in [(1, 1, 3, 1, 1), (2, 2, 5, 1, 2), (3, 0, 2, 1, 1), (4, 3, 3, 2, 1)]:
        rng = np.random.default_rng(width)
        weights = rng.standard_normal((each * CHANNELS, 1, kernel, kernel)).astype(np.float32)
        pairs = {
            name: (value, value)
            for name, value in (("stride", stride), ("padding", padding), ("kernel", kernel), ("dilation", dilation))
        }
        operation = Convolution(
            name="layer", source=0, channels=len(weights), groups=CHANNELS, activation=RELU, **pairs
        )  # fmt: skip
        x = torch.randn(1, CHANNELS, 9, width)
        bias = torch.arange(len(weights), dtype=torch.float32)
        expected = functional.conv2d(x, torch.from_numpy(weights), bias, stride, padding, dilation, CHANNELS).relu()
        check(programs(operation, (9, width), weights), x, expected)


@pytest.mark.parametrize("width", [3, 8, 23])
@pytest.mark.parametrize(("mode", "pool"), [("max", functional.max_pool2d), ("mean", functional.avg_pool2d)])
def test_pooling(width: int, mode: str, pool: Callable[..., Tensor]) -> None:
    for kernel, stride, padding in [(3, 2, 1), (2, 2, 0), (3, 1, 1)]:
        operation = Pooling(
            name="pool", source=0, mode=mode, kernel=(kernel, kernel), stride=(stride, stride),
            padding=(padding, padding),
        )  # fmt: skip
        x = torch.randn(1, CHANNELS, 11, width) - 5  # zeros of a border would be the maximum
        x[0, 2, 3, 1] = torch.nan
        made = programs(operation, (11, width))
        expected = pool(x, kernel, stride, padding)
        for program in made:
            torch.testing.assert_close(program(x)[0], expected, equal_nan=True)


def test_what_is_too_large_or_not_alike_is_computed_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, CHANNELS, 12, 12)
    cases = {
        "ends beyond the border": Pooling(
            name="pool", source=0, mode="mean", kernel=(3, 3), stride=(2, 2), ceil=True
        ),
        "borders do not count": Pooling(
            name="pool", source=0, mode="mean", kernel=(3, 3), stride=(2, 2), padding=(1, 1), padded=False
        ),
        "eight by eight taps": Pooling(name="pool", source=0, mode="max", kernel=(8, 8), stride=(1, 1)),
        "a step of five": Pooling(name="pool", source=0, mode="max", kernel=(2, 2), stride=(5, 5)),
    }  # fmt: skip
    expected = [
        functional.avg_pool2d(x, 3, 2, ceil_mode=True),
        functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        functional.max_pool2d(x, 8, 1),
        functional.max_pool2d(x, 2, 5),
    ]
    monkeypatch.setattr(windows, "CACHE", 12 * 12 * 4)
    cases["a large channel"] = Pooling(name="pool", source=0, mode="max", kernel=(3, 3), stride=(1, 1), padding=(1, 1))
    expected.append(functional.max_pool2d(x, 3, 1, 1))
    for (name, operation), wanted in zip(cases.items(), expected, strict=True):
        plan = Plan(((CHANNELS, 12, 12),), (operation,), (Output(1, "chw"),), {}, {})
        program = Program(plan, threads=1)
        assert "channel by channel" not in str(program.explain(1)), name
        torch.testing.assert_close(program(x), wanted, msg=name)
