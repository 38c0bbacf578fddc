"""Operations on maps as tensors with strides, against PyTorch: alone, and beside convolutions that need a border."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

import rvsm.runtime
from rvsm.runtime import file
from rvsm.runtime.execute.program import Program
from rvsm.runtime.plan.operation import Operation
from rvsm.runtime.plan.operations import Concatenation, Convolution, Pointwise, Softmax
from rvsm.runtime.plan.plan import Array, Output, Plan, Weights
from rvsm.runtime.plan.tensors import Constant, Contraction, Embedding, Normalization, Rearrangement
from rvsm.runtime.schedule.limits import Limit


def play(
    operation: Operation, *inputs: Tensor, weights: Tensor | None = None, bias: Tensor | None = None,
    bordered: bool = False, integer: bool = False, threads: int = 1,
) -> Tensor:  # fmt: skip
    """Return the result; ``bordered`` beside a padded convolution of each input and of the result, with no effect."""
    shapes = tuple((1,) * (4 - x.ndim) + tuple(x.shape[1:]) for x in inputs)
    k = len(inputs)
    stored = {} if weights is None else {0: Weights.of(np.asarray(weights, dtype=np.float32))}
    biases = {} if weights is None else {0: np.asarray([] if bias is None else bias, dtype=np.float32)}
    operations = [operation]
    if bordered:
        sources = [*shapes, operation.shape([shapes[v] for v in operation.sources()])]
        for value, shape in enumerate(sources):
            stored[len(operations)] = Weights.of(np.ones((1, shape[0], 3, 3), dtype=np.float32))
            biases[len(operations)] = np.zeros(1, dtype=np.float32)
            operations.append(Convolution(name="c", source=value, channels=1, kernel=(3, 3), padding=(1, 1)))
    plan = Plan(
        shapes, tuple(operations), (Output(k), *(Output(k + 1 + j) for j in range(len(operations) - 1))), stored,
        biases, arrays=tuple(Array(integer=integer) for _ in shapes),
    )  # fmt: skip
    program = Program(plan, threads=threads)
    program(*inputs)
    result = program(*inputs)
    return result[0] if bordered else result


BATCHES = st.sampled_from([1, 3, 16, 18])


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=3, max_size=6), seed=st.randoms(use_true_random=False), batch=BATCHES,
    bordered=st.booleans(), threads=st.sampled_from([1, 2]),
)  # fmt: skip
def test_any_permutation_of_parts(sizes: list[int], seed, batch: int, bordered: bool, threads: int) -> None:
    shape = (sizes[0], sizes[1], math.prod(sizes[2:]))
    order = list(range(len(sizes)))
    seed.shuffle(order)
    x = torch.randn(batch, *shape)
    first = [seed.randrange(size) for size in sizes]
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    cut = [sizes[k] - first[k] for k in order]
    expected = x.reshape(batch, *sizes)[(slice(None), *(slice(start, None) for start in first))]
    expected = expected.permute(0, *(k + 1 for k in order)).reshape(batch, cut[0], 1, -1)
    o = Rearrangement(
        name="r", source=0, offset=sum(f * s for f, s in zip(first, strides, strict=True)), sizes=tuple(cut),
        strides=tuple(strides[k] for k in order), result=tuple(expected.shape[1:]),
    )  # fmt: skip
    assert torch.equal(play(o, x, bordered=bordered, threads=threads), expected)


@pytest.mark.parametrize("batch", [1, 16])
def test_strides_of_zero_repeat(batch: int) -> None:
    x = torch.randn(batch, 3, 4, 2)
    o = Rearrangement(name="r", source=0, sizes=(12, 5, 2), strides=(2, 0, 1), result=(12, 5, 2))
    assert torch.equal(play(o, x), x.reshape(batch, 12, 1, 2).expand(-1, -1, 5, -1))
    o = Rearrangement(name="r", source=0, sizes=(24, 37), strides=(1, 0), result=(24, 1, 37))
    assert torch.equal(play(o, x), x.reshape(batch, 24, 1, 1).expand(-1, -1, -1, 37))


@pytest.mark.parametrize("bordered", [False, True])
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize(("m", "n", "k"), [(7, 37, 5), (6, 64, 8), (13, 100, 1), (1, 1, 9)])
def test_products_of_matrices(batch: int, m: int, n: int, k: int, bordered: bool) -> None:
    a, b = torch.randn(batch, 2 * 3, k, m), torch.randn(batch, 2, k, n)  # a is transposed; b has one outer axis
    expected = 0.5 * a.transpose(2, 3) @ b.repeat_interleave(3, 1)
    o = Contraction(
        name="p", a=0, b=1, sizes=(2, 3, m, n, k), a_strides=(3 * k * m, k * m, 1, m), b_strides=(k * n, 0, n),
        scale=0.5,
    )  # fmt: skip
    result = play(o, a, b, bordered=bordered, threads=2)
    torch.testing.assert_close(result, expected.reshape(batch, 6 * m, 1, n), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 17])
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize(
    ("groups", "channels", "rows", "width"),
    [(1, 37, 2, 19), (3, 8, 2, 5), (2, 1, 1, 16), (4, 50, 2, 1), (4, 50, 1, 1), (2, 300, 1, 1), (3, 64, 1, 1)],
)
def test_norms(batch: int, centered: bool, groups: int, channels: int, rows: int, width: int) -> None:  # noqa: PLR0917
    x = 3 * torch.randn(batch, groups, channels, rows, width) + 20
    weight, bias = torch.randn(channels), torch.randn(channels)
    y = x.double().movedim(2, -1)
    wide = (weight.double(), bias.double())
    if centered:
        expected = functional.layer_norm(y, (channels,), *wide, 1e-5)
    else:
        expected = functional.rms_norm(y, (channels,), wide[0], 1e-5) + wide[1]
    expected = expected.movedim(-1, 2).reshape(batch, -1, rows, width).float()
    o = Normalization(name="n", source=0, groups=groups, epsilon=1e-5, centered=centered)
    result = play(o, x.reshape(batch, -1, rows, width), weights=weight, bias=bias, threads=2)
    torch.testing.assert_close(result, expected, rtol=2e-6, atol=1e-5)  # of numbers near 20, which float32 rounds


@pytest.mark.parametrize("batch", [1, 17])
@pytest.mark.parametrize(("channels", "width"), [(7, 19), (70, 1), (7, 1), (200, 1)])
def test_softmax_of_groups_of_which_some_are_masked(batch: int, channels: int, width: int) -> None:
    x = 5 * torch.randn(batch, 3, channels, 1, width)
    x[:, 1, :, :, width // 2] = -torch.inf
    x[:, 2, 3:] = -torch.inf
    expected = functional.softmax(x.double(), 2).nan_to_num(0.0).float().reshape(batch, -1, 1, width)
    result = play(Softmax(name="s", source=0, groups=3, masked=True), x.reshape(expected.shape), threads=2)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("width", [1, 70])
def test_arithmetic_with_broadcasting(batch: int, width: int) -> None:
    a, c = torch.randn(batch, 3, 4, width), torch.randn(batch, 3, 4, 1).round()
    expected = {
        "sub": lambda x, y: x - y, "div": lambda x, y: x / y, "max": torch.maximum, "min": torch.minimum,
        "equal": lambda x, y: (x == y).float(), "below": lambda x, y: (x < y).float(),
        "at_most": lambda x, y: (x <= y).float(), "slope": lambda x, y: torch.where(x > 0, x, x * y),
    }  # fmt: skip
    for operation, reference in expected.items():
        for shape in [(3, 4, width), (1, 4, 1), (1, 1, width), (3, 1, 1), (1, 1, 1)]:
            b = torch.randn(batch, *shape)
            b.reshape(-1)[0] = a.reshape(-1)[0]
            for x, y in ((a, b), (b, a)):
                result = play(Pointwise(name="p", operation=operation, a=0, b=1), x, y)
                torch.testing.assert_close(result, reference(x, y))
    result = play(Pointwise(name="p", operation="choose", a=0, b=1, c=2), a, torch.ones(batch, 1, 1, width), c)
    torch.testing.assert_close(result, torch.where(c != 0, a, 1.0))


@pytest.mark.parametrize("bordered", [False, True])
@pytest.mark.parametrize("batch", [1, 18])
def test_rows_of_a_table(batch: int, bordered: bool) -> None:
    table, numbers = torch.randn(11, 37), torch.randint(11, (batch, 1, 2, 9))
    o = Embedding(name="e", source=0, rows=11, features=37)
    expected = functional.embedding(numbers.reshape(batch, -1), table).transpose(1, 2).reshape(batch, 37, 1, 18)
    assert torch.equal(play(o, numbers, weights=table, bordered=bordered, integer=True), expected)


@pytest.mark.parametrize("wrong", [-1, 11, 1 << 20, -(1 << 24)])
@pytest.mark.parametrize("batch", [1, 18])
def test_numbers_beyond_a_table_are_refused(batch: int, wrong: int) -> None:
    numbers = torch.zeros(batch, 1, 1, 5, dtype=torch.long)
    o = Embedding(name="e", source=0, rows=11, features=3)
    numbers[-1, 0, 0, 3] = wrong
    with pytest.raises(IndexError, match="must be from 0 to 10"):
        play(o, numbers, weights=torch.zeros(11, 3), integer=True)
    with pytest.raises(ValueError, match="must be from -16777216 to 16777216"):
        play(o, numbers.clamp(0, 0) + (1 << 33), weights=torch.zeros(11, 3), integer=True)
    with pytest.raises(TypeError, match="must hold integers but has dtype float32"):
        play(o, numbers.float(), weights=torch.zeros(11, 3), integer=True)


@pytest.mark.parametrize("batch", [1, 16])
def test_constants(batch: int, tmp_path: Path) -> None:
    values = torch.randn(3, 4, 21)
    values[0] = -torch.inf
    operations = (Constant(name="c", result=(3, 4, 21)), Pointwise(name="p", operation="add", a=0, b=1))
    stored = {0: Weights.of(values.numpy())}
    plan = Plan(((3, 4, 21),), operations, (Output(2),), stored, {0: np.zeros(0, dtype=np.float32)})
    program = Program(plan, threads=2)
    program.save(tmp_path / "model.rvsm")
    x = torch.randn(batch, 3, 4, 21)
    for each in (program, rvsm.runtime.load(tmp_path / "model.rvsm")):
        torch.testing.assert_close(each(x), x + values)


WRONG = {
    "outside of the map": (
        lambda: Rearrangement(name="r", source=0, sizes=(3, 4), strides=(5, 1), result=(3, 1, 4), offset=11),
        "needs number 24 of a map of 24 numbers",
    ),
    "too many axes": (
        lambda: Rearrangement(name="r", source=0, sizes=(1,) * 7, strides=(0,) * 7, result=(1, 1, 1)), "1 to 6 axes"
    ),
    "another size": (
        lambda: Rearrangement(name="r", source=0, sizes=(3, 4), strides=(4, 1), result=(3, 1, 5)),
        "cannot have the shape",
    ),
    "columns outside": (
        lambda: Contraction(name="c", a=0, b=0, sizes=(1, 1, 2, 9, 3), a_strides=(0, 0, 1, 1), b_strides=(0, 0, 8)),
        "needs number 24 of a map",
    ),
    "rows outside": (
        lambda: Contraction(name="c", a=0, b=0, sizes=(1, 1, 2, 2, 3), a_strides=(0, 0, 20, 2), b_strides=(0, 0, 8)),
        "needs number 24 of a map",
    ),
    "fewer strides": (
        lambda: Contraction(name="c", a=0, b=0, sizes=(1, 1, 2, 2, 3), a_strides=(0, 20, 2), b_strides=(0, 0, 8)),
        "five sizes, four strides",
    ),
    "groups": (lambda: Normalization(name="n", source=0, groups=5, epsilon=1e-5), "cannot be divided into 5 groups"),
    "epsilon": (lambda: Normalization(name="n", source=0, epsilon=-1.0), "epsilon must be a positive"),
    "no rows": (lambda: Embedding(name="e", source=0, rows=0, features=3), "1 to 16777216 rows"),
    "too many rows": (lambda: Embedding(name="e", source=0, rows=1 << 25, features=3), "1 to 16777216 rows"),
    "two sizes": (lambda: Constant(name="c", result=(2, 3)), "three sizes"),
    "softmax": (lambda: Softmax(name="s", source=0, groups=5), "cannot be divided into 5 groups"),
    "sums": (lambda: Pointwise(name="p", operation="choose", a=0, b=0), "choose with 2 values"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    build, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        Plan(((2, 3, 4),), (build(),), (Output(1),), {}, {}, complete=False)


def everything() -> Plan:
    """A plan with each of these operations."""
    operations = (
        Embedding(name="e", source=0, rows=11, features=6),
        Rearrangement(name="r", source=1, offset=1, sizes=(2, 5, 2), strides=(3, 6, 0), result=(5, 2, 2)),
        Contraction(
            name="c", a=1, b=2, sizes=(1, 2, 3, 4, 2), a_strides=(0, 3, 1, 6), b_strides=(0, 2, 8), a_offset=2,
            scale=2.0,
        ),
        Normalization(name="n", source=3, groups=3, epsilon=1e-5),
        Constant(name="k", result=(6, 1, 4)),
        Pointwise(name="p", operation="choose", a=4, b=5, c=4),
        Concatenation(name="j", parts=(4, 6), groups=2),
        Softmax(name="s", source=7, groups=4, masked=True),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    shapes = {0: (11, 6), 3: (2,), 4: (6, 1, 4)}
    weights = {k: Weights.of(rng.standard_normal(shape).astype(np.float32)) for k, shape in shapes.items()}
    biases = {k: np.zeros(2 if k == 3 else 0, dtype=np.float32) for k in shapes}
    outputs = (Output(8, sizes=(2, 6, 4), name="out"), Output(2, name="other"))
    return Plan(((1, 2, 5),), operations, outputs, weights, biases, arrays=(Array((10,), True, "words"),))


def test_any_number_changed_is_refused_or_runs() -> None:
    """Change every leaf of the graph to many values: only ValueError may come, and what is accepted is harmless."""
    plan, accepted = everything(), 0
    graph = file.graph_of(plan)
    x = np.zeros((17, 10), dtype=np.int64)
    for path in leaves(graph):
        for value in (
            0,
            -1,
            1,
            2,
            3,
            5,
            7,
            12,
            1 << 15,
            1 << 31,
            1.5,
            True,
            None,
            "x",
            "div",
            [],
            [1, 2],
            float("nan"),
        ):
            changed = copy.deepcopy(graph)
            inner: Any = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            try:
                again = replace(file.plan_of(changed), weights=plan.weights, biases=plan.biases, complete=True)
                program = Program(again, threads=1, limit=Limit(memory=1 << 28, seconds=1.0))
                program(x.reshape(17, *again.input_sizes()[0]))
            except (ValueError, IndexError):
                continue
            accepted += 1
    assert accepted > 50  # offsets and strides that stay inside


def leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        return [leaf for key, value in items for leaf in leaves(value, (*path, key))]
    return [path]


def test_a_file_with_everything_survives(tmp_path: Path) -> None:
    program = Program(everything(), threads=1)
    program.save(tmp_path / "model.rvsm")
    again = file.read(tmp_path / "model.rvsm")
    assert (again.operations, again.arrays, again.outputs) == (
        program.plan.operations, program.plan.arrays, program.plan.outputs
    )  # fmt: skip
    x = np.arange(170).reshape(17, 10) % 11
    for key, value in Program(again, threads=2)(words=x).items():
        np.testing.assert_allclose(value, program(x)[key], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="names must be given for all"):
        replace(again, outputs=(Output(1, name="a"), Output(1, name="a")))
