import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rvsm.records.states import join, split


def same(one: Any, other: Any) -> bool:
    """Whether two trees are equal to the bit, types included."""
    if torch.is_tensor(one):
        return (
            torch.is_tensor(other)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and torch.equal(bits(one), bits(other))
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return math.isnan(one) == math.isnan(other) and (math.isnan(one) or one.hex() == other.hex())
    return bool(one == other)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def through_json(tree: Any) -> Any:
    tensors, rest = split(tree)
    return join(tensors, json.loads(json.dumps(rest)))


floats = st.floats(allow_nan=True, allow_infinity=True)
leaves = st.none() | st.booleans() | st.integers() | floats | st.text()
keys = st.text() | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text())
trees = st.recursive(
    leaves,
    lambda node: st.lists(node) | st.dictionaries(keys, node) | st.tuples(node, node) | st.just(()),
    max_leaves=20,
)


@settings(max_examples=60)
@given(trees)
def test_plain_trees(tree: Any) -> None:
    assert same(through_json(tree), tree)


@pytest.mark.parametrize(
    "tree",
    [
        {"#tensor": "0"},
        {"#tuple": [1]},
        {"#pairs": [[1, 2]]},
        {"#": 1, "a": 2},
        {1: "a", "1": "b"},
        {True: 1, "x": {}},
        [(), [], {}, ((),), ""],
        {"lr": math.nan, "min": -math.inf, "max": math.inf, "zero": -0.0},
        {"big": 2**80, "small": 5e-324, "third": 1 / 3},
        "\u2028 \x00 \ud7ff ℓ",
    ],
    ids=repr,
)
def test_trees_that_look_like_marks_or_are_odd(tree: Any) -> None:
    assert same(through_json(tree), tree)


def test_tensors_where_they_were() -> None:
    tree = {"a": torch.arange(3), "b": [{"c": torch.ones(2)}, (torch.zeros(1), 3)], 0: 1}
    found = through_json(tree)
    assert same(found, tree)


def test_tensors_are_copies() -> None:
    w = torch.zeros(3)
    tensors, _ = split({"w": w})
    w.add_(1)
    assert tensors["0"].sum() == 0


@pytest.mark.parametrize(
    "bad", [Ellipsis, {1, 2}, b"bytes", 1j, torch.float32, print, range(3)], ids=lambda bad: type(bad).__name__
)
def test_what_has_no_place_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="a state may hold tensors, numbers, strings, lists and dicts but has"):
        split({"a": [bad]})


def test_parameters_lose_their_graph() -> None:
    w = torch.nn.Parameter(torch.ones(2))
    tensors, _ = split([w, w * 2])
    assert not any(t.requires_grad for t in tensors.values())
