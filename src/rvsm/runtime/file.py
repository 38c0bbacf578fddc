"""The file of a network, ``.rvsm``: a safetensors container with bit masks, non-zero values and biases.

The graph is JSON in the metadata. There are no offsets and no addresses in it: whatever indexes memory is computed by
the loader. Everything is checked; a file that is damaged, made by a newer version or made to do harm is a ValueError.
"""

import json
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rvsm.files import printable, replacing
from rvsm.runtime.forms import MAP
from rvsm.runtime.operations import Convolution, whole
from rvsm.runtime.plan import Plan
from rvsm.runtime.weights import Weights

VERSION = 2
MAX_GRAPH = 16 << 20  # bytes of JSON


def write(plan: Plan, path: Path) -> None:
    """Write a plan; the file appears whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(encode(plan))


def read(path: Path) -> Plan:
    """Read a plan and check everything; raise ValueError if it is not one."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return decode(path.read_bytes(), str(path))


def encode(plan: Plan) -> bytes:
    """Return what a file of the plan has in it."""
    from safetensors.numpy import save

    tensors: dict[str, NDArray[Any]] = {}
    for k, weights in plan.weights.items():
        tensors[f"{k}.bits"] = weights.bits
        tensors[f"{k}.values"] = weights.values
        tensors[f"{k}.bias"] = plan.biases[k]
    # One entry of metadata: several would be written in any order, and equal networks in different files.
    graph = json.dumps({"version": VERSION, **plan.describe()}, separators=(",", ":"), ensure_ascii=False)
    return save(tensors, {"rvsm": graph})


def decode(data: bytes, name: str) -> Plan:
    """Return the plan in a file's bytes; what is wrong with them is a ValueError with the file's ``name``."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(data)  # checks the container
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is not a file of rvsm, or it is damaged: {printable(str(error))}") from None
    try:
        return _plan(_graph(header.get("__metadata__", {})), tensors)
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {printable(str(error))}") from None


def _graph(metadata: dict[str, str]) -> dict[str, Any]:
    if set(metadata) != {"rvsm"}:
        raise ValueError("it is a safetensors file, but not one of rvsm")
    text = metadata["rvsm"]
    if len(text) > MAX_GRAPH:
        raise ValueError(f"its graph has {len(text)} characters; at most {MAX_GRAPH} are read")
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("its graph is not JSON") from None
    if not isinstance(graph, dict):
        raise ValueError("its graph is not a table")
    version = whole(graph.pop("version", None), "its version", 1, 10**9)
    if version > VERSION:
        raise ValueError(f"it has version {version} and this rvsm reads up to {VERSION}: upgrade rvsm")
    return graph if version > 1 else _with_forms(graph)


def _with_forms(graph: dict[str, Any]) -> dict[str, Any]:
    """Return a graph of version 1, which only said whether an input or an output is a vector, with their forms."""
    for key in ("inputs", "outputs"):
        for item in graph.get(key) or []:
            if isinstance(item, dict) and "flat" in item:
                item["form"] = "c" if item.pop("flat") is True else MAP
    return graph


def _plan(graph: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Plan:
    """Put graph and tensors together; the shapes of the weights follow from the graph."""
    bare = Plan.read(graph, {}, {}, complete=False)
    weights, biases = {}, {}
    expected = set()
    for k, operation in enumerate(bare.operations):
        if isinstance(operation, Convolution):
            names = [f"{k}.{part}" for part in ("bits", "values", "bias")]
            expected |= set(names)
            missing = [name for name in names if name not in tensors]
            if missing:
                raise ValueError(f"it lacks {', '.join(missing)}")
            bits, values, bias = (tensors[name] for name in names)
            weights[k] = Weights(operation.weight_shape(bare.shapes[operation.source]), bits, values)
            biases[k] = bias
    unexpected = sorted(set(tensors) - expected)
    if unexpected:
        raise ValueError(f"it has {len(unexpected)} tensors that no operation needs, such as {unexpected[0]!r:.40}")
    return Plan(bare.inputs, bare.operations, bare.outputs, weights, biases, bare.forms)
