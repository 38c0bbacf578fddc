"""States in safetensors files, without pickle: checkpoints, and the final weights, which any program can read.

Tensors are stored as such, and the rest of a state as JSON.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from rvsm.files import replacing
from rvsm.records.reading import parse, require_regular

Tree = Any
"""Dicts, lists, tuples, tensors, strings, numbers, booleans and None, nested."""

_FORMAT = "rvsm-checkpoint-1"
_PART = "#"  # the prefix of tensors that are not entries of a model's state themselves, but parts of an entry


class DamagedError(ValueError):
    """A file that differs from what was written."""


def split(tree: Tree) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors of a tree by name, and the rest as JSON, with marks in place of the tensors.

    >>> tensors, rest = split({"lr": 0.1, "state": {0: torch.zeros(2)}})
    >>> list(tensors), rest
    (['0'], {'lr': 0.1, 'state': {'#pairs': [[0, {'#tensor': '0'}]]}})
    >>> join(tensors, rest)
    {'lr': 0.1, 'state': {0: tensor([0., 0.])}}
    """
    tensors: dict[str, Tensor] = {}

    def plain(node: Tree) -> Any:
        if torch.is_tensor(node):
            key = str(len(tensors))
            # A copy, since the file format cannot represent two tensors that share memory.
            tensors[key] = node.detach().cpu().clone(memory_format=torch.contiguous_format)
            return {"#tensor": key}
        if isinstance(node, Mapping):
            if all(isinstance(k, str) and not k.startswith("#") for k in node):
                return {k: plain(v) for k, v in node.items()}
            return {"#pairs": [[plain(k), plain(v)] for k, v in node.items()]}
        if isinstance(node, tuple):
            return {"#tuple": [plain(part) for part in node]}
        if isinstance(node, list):
            return [plain(part) for part in node]
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise TypeError(f"a state may hold tensors, numbers, strings, lists and dicts but has {node!r}")

    return tensors, plain(tree)


def join(tensors: Mapping[str, Tensor], rest: Any) -> Tree:
    """Return the tree that was split."""
    if isinstance(rest, list):
        return [join(tensors, part) for part in rest]
    if not isinstance(rest, dict):
        return rest
    if "#tensor" in rest:
        return tensors[rest["#tensor"]]
    if "#tuple" in rest:
        return tuple(join(tensors, part) for part in rest["#tuple"])
    if "#pairs" in rest:
        return {join(tensors, key): join(tensors, value) for key, value in rest["#pairs"]}
    return {key: join(tensors, value) for key, value in rest.items()}


def save(tree: Tree, path: Path) -> None:
    """Write a checkpoint; a kill at any moment leaves the previous file, or none."""
    tensors, rest = split(tree)
    text = json.dumps(rest)
    with replacing(path) as temporary:
        # Not save_file, which has its own error for a full disk and sets its own file permissions.
        about = {"format": _FORMAT, "rest": text, "checksum": _checksum(tensors, text)}
        temporary.write_bytes(serialize(tensors, about))


def load(path: Path) -> Tree:
    """Return the state in a checkpoint, or raise `DamagedError` with the reason."""
    try:
        require_regular(path)
        tensors, about = _read(path)
    except ValueError as error:
        raise DamagedError(f"{path} cannot be read: {error}") from None
    if about.get("format") != _FORMAT:
        raise DamagedError(f"{path} is not a checkpoint of this version: its format is {about.get('format')!r}")
    text = about.get("rest", "")
    if _checksum(tensors, text) != about.get("checksum"):
        raise DamagedError(f"{path} is damaged: its checksum does not match")
    try:
        return _joined(tensors, text)
    except ValueError as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def check_weights(weights: Mapping[str, Any]) -> None:
    """Raise unless the state of a model can be written, so that the problem shows up before the training."""
    for name, value in weights.items():
        try:
            _packed({name: value})
        except (TypeError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"the model's state has {name!r}, which a file of weights cannot hold ({reason}); let the model keep"
                " tensors, numbers, strings, and lists and dicts of them"
            ) from None


def save_weights(weights: Mapping[str, Any], path: Path) -> None:
    """Write the state of a model atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(_packed(weights))


def load_weights(path: Path) -> dict[str, Any]:
    """Return the state of a model."""
    if path.exists():
        require_regular(path)
    try:
        tensors, about = _read(path)
        parts = {key.removeprefix(_PART): tensors.pop(key) for key in list(tensors) if key.startswith(_PART)}
        return {**tensors, **_joined(parts, about.get("rest", "{}"))}
    except (ValueError, TypeError) as error:  # the latter if the rest is not a table
        raise ValueError(
            f"{path} cannot be read ({error}); check that it is complete and that the run is finished"
        ) from None


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, TypeError, AttributeError, KeyError) as error:  # the last three: unknown dtypes
        raise ValueError(str(error)) from None


def _joined(tensors: Mapping[str, Tensor], text: str) -> Any:
    """Return the tree of tensors and JSON."""
    try:
        return join(tensors, parse(json.loads, text))
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _packed(weights: Mapping[str, Any]) -> bytes:
    """Return the contents of the file: tensors by name, and other values, such as an extra state, as JSON."""
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in weights.items() if torch.is_tensor(v)}
    parts, rest = split({k: v for k, v in weights.items() if not torch.is_tensor(v)})
    about = {"format": "pt", "rest": json.dumps(rest)} if rest else {"format": "pt"}
    return serialize({**tensors, **{f"{_PART}{k}": v for k, v in parts.items()}}, about)
