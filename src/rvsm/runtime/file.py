"""The file of a network, ``.rvsm``: a safetensors container with bit masks, non-zero values and biases.

The graph is JSON in the metadata. It contains no addresses: the loader computes everything that indexes memory, from
shapes, and from strides within the numbers of a map. Everything is checked; a file that is damaged, malicious or from a
newer version raises a ValueError.
"""

import json
import math
from collections.abc import Collection
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rvsm.files import printable, replacing
from rvsm.runtime.plan.axes import MAP
from rvsm.runtime.plan.operation import ACTIVATIONS, Activation, Operation, Shape
from rvsm.runtime.plan.operations import OPERATIONS
from rvsm.runtime.plan.plan import MAX_OPERATIONS, Array, Output, Plan
from rvsm.runtime.values import TYPES, Values, restored, stored

# 1 had no axes, 2 no softmax, 3 no tensors with strides and only float32, 4 no recurrent layers; a file has the lowest
# version that it needs.
VERSION = 5
_PARTS = ("bits", "values", "bias", "scales")  # of a layer with weights; scales only with integers
MAX_GRAPH = 16 << 20  # bytes of JSON
MAX_ENDS = 64  # inputs, and likewise outputs
MAX_INTEGER = 1 << 31


def write(plan: Plan, path: Path, values: Values = "float32") -> None:
    """Write a plan atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(encode(plan, values))


def read(path: Path) -> Plan:
    """Read a plan and check everything; raise ValueError if it is invalid."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return decode(path.read_bytes(), str(path))


def encode(plan: Plan, values: Values = "float32") -> bytes:
    """Return the bytes of the plan's file, with the values stored as float32, bfloat16 or int8."""
    from safetensors.numpy import save

    if values not in TYPES:
        raise ValueError(f"values must be one of {', '.join(TYPES)} but is {values!r}")
    tensors: dict[str, NDArray[Any]] = {}
    for k, weights in plan.weights.items():
        arrays = {**stored(weights, values), "bias": plan.biases[k]}
        tensors |= {f"{k}.{part}": array for part, array in arrays.items()}
    version = max(_version(plan), 1 if values == "float32" else 4)
    # One entry of metadata: several have no fixed order, so equal networks would give different files.
    graph = json.dumps({"version": version, **graph_of(plan)}, separators=(",", ":"), ensure_ascii=False)
    return save(tensors, {"rvsm": graph})


def _version(plan: Plan) -> int:
    """Return the lowest version of the format that has everything in the plan."""
    shapes = [[plan.shapes[value] for value in operation.sources()] for operation in plan.operations]
    needed = [operation.version(given) for operation, given in zip(plan.operations, shapes, strict=True)]
    plain = all(array == Array() for array in plan.arrays) and all(o.sizes is None and not o.name for o in plan.outputs)
    turned = any(output.batch for output in plan.outputs)
    return max([5 if turned else Operation.since if plain else 4, *needed])


def decode(data: bytes, name: str) -> Plan:
    """Return the plan in a file's bytes; errors are ValueErrors with the file's ``name``."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(data)  # checks the container
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is not an rvsm file, or it is damaged: {printable(str(error))}") from None
    try:
        return _with_tensors(plan_of(_graph(header.get("__metadata__", {}))), tensors)
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {printable(str(error))}") from None


def values_in(data: bytes) -> Values:
    """Return how the values are stored in a file's bytes, which ``decode`` has checked."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    found = {entry["dtype"] for name, entry in header.items() if name.endswith(".values")}
    return "int8" if "I8" in found else "bfloat16" if "U16" in found else "float32"


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
    graph = _table(data, {"inputs", "operations", "outputs"}, "the graph")
    if not all(isinstance(part, list) for part in graph.values()):
        raise ValueError("the parts of the graph must be lists")
    if len(graph["operations"]) > MAX_OPERATIONS or max(len(graph["inputs"]), len(graph["outputs"])) > MAX_ENDS:
        raise ValueError("the graph has too many parts")
    inputs = [_table(item, {"shape", "form"}, "an input", {"sizes", "integer", "name"}) for item in graph["inputs"]]
    outputs = [_table(item, {"value", "form"}, "an output", {"sizes", "name", "batch"}) for item in graph["outputs"]]
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
    batch = _integer(item.get("batch", 0), "batch")
    return Output(_integer(item["value"], "value"), item["form"], *_named(item), batch)


def _named(item: dict[str, Any]) -> tuple[tuple[int, ...] | None, str]:
    """Return the sizes of an array and its name, if they are given."""
    sizes = _field(item["sizes"], tuple[int, ...], "sizes") if "sizes" in item else None
    return sizes, _field(item.get("name", ""), str, "name")


def _graph(metadata: dict[str, str]) -> dict[str, Any]:
    if set(metadata) != {"rvsm"}:
        raise ValueError("it is a safetensors file, but not an rvsm file")
    text = metadata["rvsm"]
    if len(text) > MAX_GRAPH:
        raise ValueError(f"its graph has {len(text)} characters; at most {MAX_GRAPH} are read")
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("its graph is not JSON") from None
    if not isinstance(graph, dict):
        raise ValueError("its graph is not a table")
    version = _integer(graph.pop("version", None), "its version", 1, 10**9)
    if version > VERSION:
        raise ValueError(f"it has version {version} and this rvsm reads up to {VERSION}: upgrade rvsm")
    return graph if version > 1 else _with_forms(graph)


def _with_forms(graph: dict[str, Any]) -> dict[str, Any]:
    """Return a graph of version 1, which only recorded whether an input or output is a vector, with the forms added."""
    for key in ("inputs", "outputs"):
        for item in graph.get(key) or []:
            if isinstance(item, dict) and "flat" in item:
                item["form"] = "c" if item.pop("flat") is True else MAP
    return graph


def _with_tensors(bare: Plan, tensors: dict[str, NDArray[Any]]) -> Plan:
    """Combine graph and tensors; the shapes of the weights follow from the graph."""
    weights, biases = {}, {}
    expected = set()
    for k, operation in enumerate(bare.operations):
        shape = operation.weight_shape([bare.shapes[value] for value in operation.sources()])
        if shape is None:
            continue
        arrays = {part: tensors[f"{k}.{part}"] for part in _PARTS if f"{k}.{part}" in tensors}
        expected |= {f"{k}.{part}" for part in arrays}
        missing = [f"{k}.{part}" for part in ("bits", "values", "bias") if part not in arrays]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        biases[k] = arrays.pop("bias")
        weights[k] = restored(shape, arrays)
    unexpected = sorted(set(tensors) - expected)
    if unexpected:
        raise ValueError(f"it has {len(unexpected)} tensors that no operation needs, such as {unexpected[0]!r:.40}")
    return replace(bare, weights=weights, biases=biases, complete=True)


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
        return None if data is None else _integer(data, name)
    if kind is int:
        return _integer(data, name)
    if kind is float:
        return _number(data)
    if (kind is str and isinstance(data, str) and len(data) <= 1000) or (kind is bool and isinstance(data, bool)):
        return data
    pair, many = kind == tuple[int, int], kind == tuple[int, ...]
    if isinstance(data, list) and ((pair and len(data) == 2) or (many and len(data) <= 1000)):
        return tuple(_integer(item, name) for item in data)
    if kind is Activation and isinstance(data, list) and len(data) == 3 and data[0] in ACTIVATIONS:
        return Activation(data[0], _number(data[1]), _number(data[2]))
    raise ValueError(f"{name} has an unexpected value: {data!r:.80}")


def _integer(data: object, name: str, low: int = 0, high: int = MAX_INTEGER) -> int:
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
    c, h, w = (_integer(item, "shape", 1, 1 << 28) for item in data)
    return c, h, w


def _table(data: object, keys: set[str], subject: str, optional: Collection[str] = ()) -> dict[str, Any]:
    if not isinstance(data, dict) or not keys <= set(data) <= keys | set(optional):
        raise ValueError(f"{subject} must have {', '.join(sorted(keys))}")
    return data
