"""Plans: what is wrong with one is said, whichever part is changed."""

import copy
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rvsm.runtime import file
from rvsm.runtime.plan.operation import RELU
from rvsm.runtime.plan.operations import Concatenation, Convolution, Pointwise, Pooling
from rvsm.runtime.plan.plan import Output, Plan, Weights


def small_plan() -> Plan:
    rng = np.random.default_rng(0)
    first = rng.standard_normal((4, 3, 3, 3)).astype(np.float32) * (rng.random((4, 3, 3, 3)) < 0.5)
    second = rng.standard_normal((4, 4, 1, 1)).astype(np.float32)
    operations = (
        Convolution(name="a", source=0, channels=4, kernel=(3, 3), padding=(1, 1), activation=RELU),
        Convolution(name="b", source=1, residual=1, channels=4, kernel=(1, 1)),
        Concatenation(name="c", parts=(1, 2)),
        Pooling(name="d", source=3, mode="max", kernel=(2, 2), stride=(2, 2)),
        Pointwise(name="e", operation="mul", a=4, b=4),
    )
    weights = {0: Weights.of(first.astype(np.float32)), 1: Weights.of(second)}
    biases = {0: np.zeros(4, np.float32), 1: np.ones(4, np.float32)}
    return Plan(((3, 8, 8),), operations, (Output(5),), weights, biases)


def read(graph: Any, plan: Plan) -> Plan:
    """Return what a file with this graph and the plan's weights has in it."""
    return replace(file.plan_of(graph), weights=plan.weights, biases=plan.biases, complete=True)


def test_a_plan_survives_json() -> None:
    import json

    plan = small_plan()
    again = read(json.loads(json.dumps(file.graph_of(plan))), plan)
    assert again.operations == plan.operations
    assert again.shapes == plan.shapes == ((3, 8, 8), (4, 8, 8), (4, 8, 8), (8, 8, 8), (8, 4, 4), (8, 4, 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g["operations"][0].update(source=1), "takes value 1, but only 1 values exist before it"),
        (lambda g: g["operations"][1].update(residual=0), "the residual must have the shape"),
        (lambda g: g["operations"][0].update(kernel=[5, 3]), "needs weights of shape"),
        (lambda g: g["operations"][0].update(kernel=[3, 99999]), "kernel must be from 1 to"),
        (lambda g: g["operations"][0].update(padding=[1, 5000]), "padding must be from 0 to"),
        (lambda g: g["operations"][0].update(dilation=[0, 1]), "dilation must be from 1 to"),
        (lambda g: g["operations"][0].update(stride=[1, 0]), "stride must be from 1 to"),
        (lambda g: g["operations"][0].update(groups=2), "cannot be divided into 2 groups"),
        (lambda g: g["operations"][0].update(channels=-4), "channels must be an integer"),
        (lambda g: g["operations"][0].update(activation=["boom", 0, 0]), "activation has an unexpected value"),
        (lambda g: g["operations"][0].update(extra=1), "it has"),
        (lambda g: g["operations"][0].update(kind="system"), "an operation must be one of convolution"),
        (lambda g: g["operations"][0].update(kind=[]), "an operation must be one of convolution"),
        (lambda g: g["operations"][3].update(mode="median"), "unknown pooling 'median'; choose from max, mean"),
        (lambda g: g["operations"][3].update(padding=[2, 2]), "at most half of the kernel"),
        (lambda g: g["operations"][4].update(operation="pow"), "unknown operation 'pow'; choose from add, mul, none"),
        (lambda g: g["operations"][4].update(b=0), "do not match"),
        (lambda g: g["operations"][2].update(parts=[]), "cannot be concatenated"),
        (lambda g: g["inputs"][0].update(shape=[3, 1 << 20, 1 << 20]), "too large"),
        (lambda g: g["inputs"][0].update(shape=[3, 8]), "a shape must be three integers"),
        (lambda g: g["inputs"][0].update(shape=[3, 1, 1]), "empty"),
        (lambda g: g["outputs"][0].update(value=17), "the output is value 17, but there are 6 values"),
        (lambda g: g["outputs"][0].update(form="c"), "cannot have the form 'c'"),
        (lambda g: g["inputs"][0].update(form="hcw"), "the form of an input must be one of chw, cw, c, hwc, wc"),
        (lambda g: g["inputs"][0].update(form=[]), "the form of an input must be one of"),
        (lambda g: g.update(outputs=[]), "at least one input and one output"),
        (lambda g: g.update(operations={}), "must be lists"),
        (lambda g: g.pop("inputs"), "the graph must have inputs, operations, outputs"),
    ],
)
def test_what_is_wrong_is_said(change: Any, message: str) -> None:
    plan = small_plan()
    graph = copy.deepcopy(file.graph_of(plan))
    change(graph)
    with pytest.raises(ValueError, match=message):
        read(graph, plan)


def test_any_number_changed_is_refused_or_gives_another_valid_plan() -> None:
    """Change every leaf of the graph to many values: only ValueError may come."""
    plan = small_plan()
    generator = random.Random(0)
    values = [
        0,
        -1,
        1,
        2,
        7,
        1 << 15,
        1 << 31,
        1 << 40,
        10**400,
        1.5,
        True,
        None,
        "x",
        "inf",
        [],
        {},
        [1, 2],
        float("nan"),
    ]
    accepted = 0
    for path in leaves(file.graph_of(plan)):
        for value in [*values, generator.randrange(-(1 << 34), 1 << 34)]:
            graph: Any = copy.deepcopy(file.graph_of(plan))
            inner = graph
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            try:
                changed = read(graph, plan)
            except ValueError:
                continue
            accepted += 1
            assert all(min(shape) > 0 for shape in changed.shapes)
    assert accepted > 10  # names, say


def leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(data, dict):
        return [leaf for key, value in data.items() for leaf in leaves(value, (*path, key))]
    if isinstance(data, list):
        return [leaf for key, value in enumerate(data) for leaf in leaves(value, (*path, key))]
    return [path]


def test_weights_belong_to_convolutions() -> None:
    plan = small_plan()
    with pytest.raises(ValueError, match="has no weights or no bias"):
        Plan(plan.inputs, plan.operations, plan.outputs, {}, plan.biases)
    with pytest.raises(ValueError, match="is a concatenation and cannot have weights"):
        Plan(plan.inputs, plan.operations, plan.outputs, {**plan.weights, 2: plan.weights[0]}, plan.biases)
    with pytest.raises(ValueError, match="needs a bias of 4 float32"):
        Plan(plan.inputs, plan.operations, plan.outputs, plan.weights, {**plan.biases, 0: np.zeros(5, np.float32)})


@pytest.mark.parametrize(
    ("bits", "values", "message"),
    [
        (np.zeros(2, np.uint8), np.zeros(0, np.float32), "the mask of 6 weights must have 1 bytes"),
        (np.array([0b11000000], np.uint8), np.zeros(1, np.float32), "has 2 bits set but there are 1 values"),
        (np.array([0b00000001], np.uint8), np.zeros(1, np.float32), "beyond its last weight"),
        (np.zeros(1, np.int8), np.zeros(0, np.float32), "must have 1 bytes"),
        (np.zeros(1, np.uint8), np.zeros(0, np.float64), "a one-dimensional float32 array"),
    ],
)
def test_masks_and_values_agree(bits: Any, values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Weights((2, 3), bits, values)
