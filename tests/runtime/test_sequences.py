"""Families of plans: laws, corners, programs for each length, and files that try to get beyond them."""

import copy
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rvsm.runtime
from rvsm.runtime import SequenceProgram, file
from rvsm.runtime.execute import sequences
from rvsm.runtime.execute.program import Program
from rvsm.runtime.family import Family, corner
from rvsm.runtime.graph import graph_of
from rvsm.runtime.laws import at, fitted
from rvsm.runtime.plan.operations import Convolution, Pointwise
from rvsm.runtime.plan.plan import Array, Output, Plan, Weights
from rvsm.runtime.plan.tensors import Constant, Contraction

LONGEST, FEATURES = 12, 3
TABLE = np.random.default_rng(0).standard_normal((FEATURES, 1, LONGEST)).astype(np.float32)
MATRIX = np.random.default_rng(1).standard_normal((4, FEATURES, 1, 1)).astype(np.float32)


def plan_of(length: int) -> Plan:
    """Features plus a table of positions, a layer, and products of all pairs of positions."""
    operations = (
        Constant(name="table", result=(FEATURES, 1, length)),
        Pointwise(name="sum", operation="add", a=0, b=1),
        Convolution(name="layer", source=2, channels=4, kernel=(1, 1)),
        Contraction(
            name="pairs", a=3, b=3, sizes=(1, 1, length, length, 4), a_strides=(0, 0, 1, length),
            b_strides=(0, 0, length),
        ),
    )  # fmt: skip
    weights = {0: Weights.of(np.ascontiguousarray(TABLE[:, :, :length])), 2: Weights.of(MATRIX)}
    biases = {0: np.zeros(0, dtype=np.float32), 2: np.ones(4, dtype=np.float32)}
    outputs = (Output(4, "cw"), Output(3, "wc"))
    return Plan(((FEATURES, 1, length),), operations, outputs, weights, biases, ("wc",), arrays=(Array(name="x"),))


def family() -> Family:
    plan = plan_of(LONGEST)
    graph = fitted({n: graph_of(plan_of(n)) for n in (5, 7, 11)})
    axes = {0: [[FEATURES], [1], [{"length": [0, 1, 0]}]]}
    return Family(graph, 1, LONGEST, plan.weights, plan.biases, axes)


def expected(x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    y = (x + TABLE[:, 0, : x.shape[1]].T) @ MATRIX[:, :, 0, 0].T + 1
    return y @ y.transpose(0, 2, 1), y


def check(program: SequenceProgram, length: int, batch: int = 3) -> None:
    x = np.random.default_rng(length).standard_normal((batch, length, FEATURES)).astype(np.float32)
    for found, wanted in zip(program(x=x), expected(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_every_length_in_memory_and_from_a_file(tmp_path: Path) -> None:
    program = SequenceProgram(family(), threads=1)
    program.save(tmp_path / "model.rvsm")
    loaded = rvsm.runtime.load(tmp_path / "model.rvsm", threads=1)
    assert isinstance(loaded, SequenceProgram)
    loaded.save(tmp_path / "again.rvsm")
    assert (tmp_path / "again.rvsm").read_bytes() == (tmp_path / "model.rvsm").read_bytes()
    for length in range(1, LONGEST + 1):
        check(program, length)
    for each in (loaded, pickle.loads(pickle.dumps(program)), copy.deepcopy(loaded)):
        check(each, 1)
        check(each, 7, batch=17)
    for wrong in (0, LONGEST + 1):
        with pytest.raises(ValueError, match=f"sequences may have 1 to {LONGEST} positions but these have {wrong}"):
            loaded(np.zeros((1, wrong, FEATURES), dtype=np.float32))
    with pytest.raises(ValueError, match=r"must have the shape \(batch, 12, 3\) but has \(2,\)"):
        loaded(np.zeros(2, dtype=np.float32))
    with pytest.raises(ValueError, match="takes 1 inputs but 0 are given"):
        loaded()
    assert "sequences, which may have 1 to 12 positions" in str(rvsm.runtime.describe(tmp_path / "model.rvsm"))
    assert len(loaded.explain(1, 5).rows) == len(loaded.explain(1).rows)


def test_the_lengths_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "KEPT", 3)
    program = SequenceProgram(family(), threads=1).prepare(1, 2, 3)
    kept = program.program(1)
    check(program, 4)
    assert program.program(1) is kept
    assert list(program._programs) == [3, 4, 1]


def test_threads_may_use_different_lengths_at_once() -> None:
    program, failed = SequenceProgram(family(), threads=1), list[BaseException]()

    def work(length: int) -> None:
        try:
            for _ in range(5):
                check(program, length)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(1 + k % 4,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize(
    "graphs",
    [
        {3: 1, 5: 2, 7: 4},  # half a length
        {3: 1, 5: "a", 7: 2},
        {3: [1], 5: [1, 2], 7: [1]},
        {3: {"a": 1}, 5: {"b": 1}, 7: {"a": 1}},
        {3: 0.5, 5: 0.25, 7: 0.125},
        {3: True, 5: False, 7: True},
        {3: 1, 5: 3, 7: 5, 9: 8},  # the fourth is another law
    ],
)
def test_what_follows_no_law_is_refused(graphs: dict[int, Any]) -> None:
    with pytest.raises(ValueError, match="where, what depends on the length of the sequences in a way"):
        fitted({n: {"name": "where", "what": graph} for n, graph in graphs.items()}, "where")


def test_laws_are_exact() -> None:
    assert at(fitted({n: [n * n - 3 * n + 7, n - 1, 4] for n in (5, 11, 13, 501)}), 1000) == [997_007, 999, 4]


def test_corners() -> None:
    one = {"length": [0, 1, 0]}
    pairs = np.arange(2 * 4 * 4, dtype=np.float32).reshape(8, 4)
    assert corner(pairs, [[2, one], [one]], 4, 2).tolist() == [[0, 1], [4, 5], [16, 17], [20, 21]]
    assert corner(pairs, [[one, 2], [one]], 4, 1).tolist() == [[0], [4]]
    for axes in ([[one], [one]], [[8], [{"length": [12, -2, 0]}]], [[8], [-4, -1]]):
        with pytest.raises(ValueError, match=r"axes|axis"):
            corner(pairs, axes, 4, 2)


VALUES: list[Any] = [
    0, 1, -1, 5, 1 << 31, 1.5, None, True, "x", [], [1, 2], {}, {"length": [0, 1, 0]}, {"length": [0, 0, 1]},
    {"length": [1, 1, 0]}, {"length": [0, -1, 0]}, {"length": [-1, 1, 0]}, {"length": [0, 1 << 50, 0]},
    {"length": [0, 1]}, {"length": [0, 1.0, 0]}, {"length": {"length": [0, 1, 0]}}, {"length": "x", "y": 1},
]  # fmt: skip


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(data, dict | list):
        return [path]
    items = data.items() if isinstance(data, dict) else enumerate(data)
    return [path, *(place for key, value in items for place in places(value, (*path, key)))]


def test_any_part_of_a_file_changed_is_refused_or_runs(tmp_path: Path) -> None:
    """Laws, axes and limits of hostile files: a ValueError when it is read, or for the length that is wrong."""
    data = file.encode(family())
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    graph, accepted, refused = json.loads(header["__metadata__"]["rvsm"]), 0, 0
    for place in places(graph)[1:]:
        for value in VALUES:
            changed = copy.deepcopy(graph)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            header["__metadata__"]["rvsm"] = json.dumps(changed)
            text = json.dumps(header).encode()
            try:
                network = file.decode(len(text).to_bytes(8, "little") + text + data[8 + size :], "model.rvsm")
            except ValueError:
                refused += 1
                continue
            assert isinstance(network, Family | Plan)
            for length in range(network.shortest, min(network.longest, 20) + 1) if isinstance(network, Family) else ():
                try:
                    network.plan(length)
                except ValueError:
                    refused += 1
                else:
                    accepted += 1
    assert accepted > 100
    assert refused > 1000


def test_deep_and_wrong_tables_are_refused() -> None:
    good = family()
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    for graph in (deep, {**good.graph, "operations": deep}):
        with pytest.raises(ValueError, match=r"too deep|must be|must have"):
            Family(graph, 1, 12, good.weights, good.biases, good.axes).plan(3)


def test_all_lengths_share_their_weights() -> None:
    program = SequenceProgram(family(), threads=1).prepare(5, 6, 9)

    def streams(length: int) -> set[int]:
        steps = program.program(length)._single.schedule.steps
        return {id(step.operands["stream"]) for step in steps if "stream" in step.operands}

    assert streams(5) == streams(6) == streams(9)
    assert len(streams(5)) == 1


@pytest.mark.parametrize("choose", ["sparse", "dense"])
@pytest.mark.parametrize("groups", [1, 3])
def test_numbers_of_channels_instead_of_offsets(choose: str, groups: int) -> None:
    rng = np.random.default_rng(0)
    shape = (9, 30 // groups, 1, 1)
    dense = (rng.standard_normal(shape) * (rng.random(shape) < 0.5)).astype(np.float32)
    operation = Convolution(name="layer", source=0, channels=9, kernel=(1, 1), groups=groups)
    weights, biases, packs = {0: Weights.of(dense)}, {0: np.ones(9, dtype=np.float32)}, dict[Any, Any]()
    for width in (1, 37, 300):
        plan = Plan(((30, 1, width),), (operation,), (Output(1, "cw"),), weights, biases, ("cw",))
        x = rng.standard_normal((17, 30, width)).astype(np.float32)
        usual, shared = (Program(plan, threads=2, choose=choose, packs=p)(x) for p in (None, packs))
        np.testing.assert_allclose(shared, usual, rtol=1e-5, atol=1e-5)
    assert packs
