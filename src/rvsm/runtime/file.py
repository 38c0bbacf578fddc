"""The file of a network, ``.rvsm``: a safetensors container with bit masks, non-zero values and biases.

The graph is JSON in the metadata. It contains no addresses: the loader computes everything that indexes memory, from
shapes, and from strides within the numbers of a map. Everything is checked; a file that is damaged, malicious or from a
newer version raises a ValueError.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.files import printable, replacing
from rvsm.runtime.family import Family, bare_plan, checked_lengths, lengths_of
from rvsm.runtime.graph import graph_of, integer, plan_of
from rvsm.runtime.plan.axes import MAP
from rvsm.runtime.plan.operation import Operation
from rvsm.runtime.plan.plan import Array, Plan
from rvsm.runtime.values import TYPES, Values, restored, stored

# 1 had no axes, 2 no softmax, 3 no tensors with strides and only float32, 4 no recurrent layers and no free lengths; a
# file has the lowest version that it needs.
VERSION = 5
_PARTS = ("bits", "values", "bias", "scales")  # of a layer with weights; scales only with integers
MAX_GRAPH = 16 << 20  # bytes of JSON


def write(network: Plan | Family, path: Path, values: Values = "float32") -> None:
    """Write a network atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(encode(network, values))


def read(path: Path) -> Plan | Family:
    """Read a network and check everything; raise ValueError if it is invalid."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a file that rvsm pack has written, such as model.rvsm in it")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return decode(path.read_bytes(), str(path))


def encode(network: Plan | Family, values: Values = "float32") -> bytes:
    """Return the bytes of a network's file, with the values stored as float32, bfloat16 or int8."""
    from safetensors.numpy import save

    if values not in TYPES:
        raise ValueError(f"values must be one of {', '.join(TYPES)} but is {values!r}")
    tensors: dict[str, NDArray[Any]] = {}
    for k, weights in network.weights.items():
        arrays = {**stored(weights, values), "bias": network.biases[k]}
        tensors |= {f"{k}.{part}": array for part, array in arrays.items()}
    if isinstance(network, Family):
        graph = {"version": VERSION, "lengths": lengths_of(network), **network.graph}
    else:
        graph = {"version": max(_version(network), 1 if values == "float32" else 4), **graph_of(network)}
    # One entry of metadata: several have no fixed order, so equal networks would give different files.
    return save(tensors, {"rvsm": _text({**graph, "checksum": _checksum(graph, tensors)})})


def _text(graph: dict[str, Any]) -> str:
    return json.dumps(graph, separators=(",", ":"), ensure_ascii=False)


def _checksum(graph: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> str:
    """Return a checksum of all that a file holds, against accidental damage."""
    found = hashlib.sha256(_text(graph).encode())
    for name in sorted(tensors):
        found.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        found.update(np.ascontiguousarray(tensors[name]).tobytes())
    return found.hexdigest()


def _version(plan: Plan) -> int:
    """Return the lowest version of the format that has everything in the plan."""
    shapes = [[plan.shapes[value] for value in operation.sources()] for operation in plan.operations]
    needed = [operation.version(given) for operation, given in zip(plan.operations, shapes, strict=True)]
    plain = all(array == Array() for array in plan.arrays) and all(o.sizes is None and not o.name for o in plan.outputs)
    turned = any(output.batch for output in plan.outputs)
    return max([5 if turned else Operation.since if plain else 4, *needed])


def decode(data: bytes, name: str) -> Plan | Family:
    """Return the network in a file's bytes; errors are ValueErrors with the file's ``name``."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(data)  # checks the container
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is not an rvsm file, or it is damaged: {printable(str(error))}") from None
    try:
        graph = _graph(header.get("__metadata__", {}))
        checksum = graph.pop("checksum", None)  # older files have none
        damaged = checksum is not None and checksum != _checksum(graph, tensors)
        graph = _current(graph)
        found = _family(graph, tensors) if "lengths" in graph else _with_tensors(plan_of(graph), tensors)
        if damaged:  # other errors say more
            raise ValueError("it is damaged: its checksum is wrong; restore an intact copy, or pack the network again")
        return found
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {printable(str(error))}") from None


def _family(graph: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Family:
    """Return a family of plans, of which those of the shortest and the longest sequences are checked now."""
    shortest, longest, axes = checked_lengths(graph.pop("lengths"))
    plan = _with_tensors(bare_plan(graph, longest), tensors)
    if not set(axes) <= set(plan.weights):
        raise ValueError("it names axes of weights that do not exist")
    family = Family(graph, shortest, longest, plan.weights, plan.biases, axes)
    family.plan(shortest)
    return family


def values_in(data: bytes) -> Values:
    """Return how the values are stored in a file's bytes, which ``decode`` has checked."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    found = {entry["dtype"] for name, entry in header.items() if name.endswith(".values")}
    return "int8" if "I8" in found else "bfloat16" if "U16" in found else "float32"


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
    return graph


def _current(graph: dict[str, Any]) -> dict[str, Any]:
    """Return a graph in the form of the current version, without its version."""
    version = integer(graph.pop("version", None), "its version", 1, 10**9)
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
