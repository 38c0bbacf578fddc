"""A checkpoint file: safetensors for the tensors, JSON for the rest, a checksum over both."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from rvsm.files import replacing
from rvsm.records.reading import parse_json, require_regular
from rvsm.records.tree import Tree, join, split

_FORMAT = "rvsm-checkpoint-1"


class DamagedError(ValueError):
    """A file that differs from what was written."""


def save(tree: Tree, path: Path) -> None:
    """Write a state; a kill at any moment leaves the previous file, or none."""
    tensors, rest = split(tree)
    text = json.dumps(rest)
    with replacing(path) as temporary:
        # Not save_file, which has its own error for a full disk and sets its own file permissions.
        about = {"format": _FORMAT, "rest": text, "checksum": _checksum(tensors, text)}
        temporary.write_bytes(serialize(tensors, about))


def load(path: Path) -> Tree:
    """Return a state, or raise `DamagedError` with the reason."""
    try:
        require_regular(path)
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:  # unknown dtypes
        raise DamagedError(f"{path} cannot be read: {error}") from None
    if about.get("format") != _FORMAT:
        raise DamagedError(f"{path} is not a checkpoint of this version: its format is {about.get('format')!r}")
    text = about.get("rest", "")
    if _checksum(tensors, text) != about.get("checksum"):
        raise DamagedError(f"{path} is damaged: its checksum does not match")
    try:
        return join(tensors, parse_json(text))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from None
    except RecursionError:
        raise DamagedError(f"{path} is damaged: it is nested too deeply") from None


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
