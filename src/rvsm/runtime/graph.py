"""The graph of a plan as JSON data, and back. Nothing in the data is trusted: anything unexpected is a ValueError."""

import math
from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import Any

from rvsm.runtime.plan.operation import ACTIVATIONS, Activation, Operation, Shape
from rvsm.runtime.plan.operations import OPERATIONS
from rvsm.runtime.plan.plan import MAX_OPERATIONS, Array, Output, Plan

MAX_ENDS = 64  # inputs, and likewise outputs
MAX_INTEGER = 1 << 31


def graph_of(plan: Plan) -> dict[str, Any]:
    """Return a plan without its weights as JSON data; ``plan_of`` is the inverse."""
    ends = zip(plan.inputs, plan.axes, plan.arrays, strict=True)
    return {
        "inputs": [
            {"shape": list(shape), "form": axes, **_given(sizes=array.sizes, integer=array.integer, name=array.name)}
            for shape, axes, array in ends
        ],
        "operations": [_described(operation) for operation in plan.operations],
        "outputs": [
            {
                "value": output.value,
                "form": output.axes,
                **_given(sizes=output.sizes, name=output.name, batch=output.batch),
            }
            for output in plan.outputs
        ],
    }


def _given(**properties: Any) -> dict[str, Any]:
    """Return the properties that are not empty, as JSON data; no sizes at all are sizes, too."""
    kept = {key: value for key, value in properties.items() if value or value == ()}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()}


def plan_of(data: object) -> Plan:
    """Return the plan that ``graph_of`` has written, without its weights; anything unexpected raises a ValueError."""
    graph = table(data, {"inputs", "operations", "outputs"}, "the graph")
    if not all(isinstance(part, list) for part in graph.values()):
        raise ValueError("the parts of the graph must be lists")
    if len(graph["operations"]) > MAX_OPERATIONS or max(len(graph["inputs"]), len(graph["outputs"])) > MAX_ENDS:
        raise ValueError("the graph has too many parts")
    inputs = [table(item, {"shape", "form"}, "an input", {"sizes", "integer", "name"}) for item in graph["inputs"]]
    outputs = [table(item, {"value", "form"}, "an output", {"sizes", "name", "batch"}) for item in graph["outputs"]]
    return Plan(
        tuple(_shape(item["shape"]) for item in inputs),
        tuple(_operation(item) for item in graph["operations"]),
        tuple(_output(item) for item in outputs),
        {},
        {},
        tuple(item["form"] for item in inputs),
        complete=False,
        arrays=tuple(Array(_named(item)[0], item.get("integer") is True, _named(item)[1]) for item in inputs),
    )


def _output(item: dict[str, Any]) -> Output:
    batch = integer(item.get("batch", 0), "batch")
    return Output(integer(item["value"], "value"), item["form"], *_named(item), batch)


def _named(item: dict[str, Any]) -> tuple[tuple[int, ...] | None, str]:
    """Return the sizes of an array and its name, if they are given."""
    sizes = _field(item["sizes"], tuple[int, ...], "sizes") if "sizes" in item else None
    return sizes, _field(item.get("name", ""), str, "name")


def _described(operation: Operation) -> dict[str, Any]:
    """Return an operation as JSON data; default values are left out."""
    data: dict[str, Any] = {"kind": operation.kind}
    for item in fields(operation):
        value = getattr(operation, item.name)
        if value == item.default:
            continue
        if isinstance(value, Activation):
            value = [value.name, *(x if math.isfinite(x) else str(x) for x in (value.a, value.b))]
        data[item.name] = list(value) if isinstance(value, tuple) else value
    return data


def _operation(data: object) -> Operation:
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str) or data["kind"] not in OPERATIONS:
        raise ValueError(f"an operation must be one of {', '.join(OPERATIONS)}, not {data!r:.80}")
    kind = OPERATIONS[data["kind"]]
    known = {item.name: item.type for item in fields(kind)}
    needed = {item.name for item in fields(kind) if item.default is MISSING}
    if not {"kind", *needed} <= set(data) <= {"kind", *known}:
        raise ValueError(f"a {data['kind']} must have {', '.join(sorted(needed))}; it has {', '.join(sorted(data))}")
    return kind(**{name: _field(data[name], annotation, name) for name, annotation in known.items() if name in data})


def _field(data: object, kind: object, name: str) -> Any:
    """Return ``data`` converted to the type of a field."""
    if kind == int | None:
        return None if data is None else integer(data, name)
    if kind is int:
        return integer(data, name)
    if kind is float:
        return _number(data)
    if (kind is str and isinstance(data, str) and len(data) <= 1000) or (kind is bool and isinstance(data, bool)):
        return data
    pair, many = kind == tuple[int, int], kind == tuple[int, ...]
    if isinstance(data, list) and ((pair and len(data) == 2) or (many and len(data) <= 1000)):
        return tuple(integer(item, name) for item in data)
    if kind is Activation and isinstance(data, list) and len(data) == 3 and data[0] in ACTIVATIONS:
        return Activation(data[0], _number(data[1]), _number(data[2]))
    raise ValueError(f"{name} has an unexpected value: {data!r:.80}")


def integer(data: object, name: str, low: int = 0, high: int = MAX_INTEGER) -> int:
    """Return an integer in a range."""
    if not isinstance(data, int) or isinstance(data, bool) or not low <= data <= high:
        raise ValueError(f"{name} must be an integer from {low} to {high} but is {data!r:.80}")
    return data


def _number(data: object) -> float:
    """Return a float; infinity, which JSON does not have, is written as a string."""
    if data in ("inf", "-inf"):
        return float(str(data))
    if isinstance(data, int | float) and not isinstance(data, bool) and abs(data) < 3e38:
        return float(data)
    raise ValueError(f"expected a number but got {data!r:.80}")


def _shape(data: object) -> Shape:
    if not isinstance(data, list) or len(data) != 3:
        raise ValueError(f"a shape must be three integers but is {data!r:.80}")
    c, h, w = (integer(item, "shape", 1, 1 << 28) for item in data)
    return c, h, w


def table(data: object, keys: set[str], subject: str, optional: Collection[str] = ()) -> dict[str, Any]:
    """Return a table with these keys."""
    if not isinstance(data, dict) or not keys <= set(data) <= keys | set(optional):
        raise ValueError(f"{subject} must have {', '.join(sorted(keys))}")
    return data
