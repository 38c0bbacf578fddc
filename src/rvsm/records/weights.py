"""The final weights: a safetensors file, which any program can read, with the rest of the state of a model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize

from rvsm.files import replacing
from rvsm.records.reading import parse_json, require_regular
from rvsm.records.tree import join, split

_MARK = "#"
"""The prefix of tensors that are not entries of the state themselves, but parts of an entry."""


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
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
            rest = parse_json((file.metadata() or {}).get("rest", "{}"))
        parts = {key.removeprefix(_MARK): tensors.pop(key) for key in list(tensors) if key.startswith(_MARK)}
        return {**tensors, **join(parts, rest)}
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); check that it is complete and that the run is finished"
        ) from None
    except RecursionError:
        raise ValueError(f"{path} cannot be read (it is nested too deeply)") from None


def _packed(weights: Mapping[str, Any]) -> bytes:
    """Return the contents of the file: tensors by name, and other values, such as an extra state, as JSON."""
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in weights.items() if torch.is_tensor(v)}
    parts, rest = split({k: v for k, v in weights.items() if not torch.is_tensor(v)})
    about = {"format": "pt", "rest": json.dumps(rest)} if rest else {"format": "pt"}
    return serialize({**tensors, **{f"{_MARK}{k}": v for k, v in parts.items()}}, about)
