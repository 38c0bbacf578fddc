"""What a method's state says of its layers, and whether a saved one fits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from rvsm.splitting.layers import Layer

_FORMAT = 1


def header(method: str, layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the part of a state by which it is recognised, with the λ and β of each layer."""
    return {
        "format": _FORMAT,
        "method": method,
        "layers": {
            layer.name: {
                "shape": list(layer.w.shape),
                "beta": layer.beta,
                "lam": None if layer.penalty is None else layer.penalty.lam,
            }
            for layer in layers
        },
    }


def check(saved: Mapping[str, Any], method: str, layers: Sequence[Layer]) -> None:
    """Raise, before anything is changed, if a saved state is not of this method and these layers."""
    keys = ("format", "method", "layers", "step", "finalized", "support", "memory")
    if not isinstance(saved, Mapping) or (absent := [key for key in keys if key not in saved]):
        lacking = f" without {', '.join(absent)}" if isinstance(saved, Mapping) else ""
        raise ValueError(f"expected the state_dict() of a {method} but got a {type(saved).__name__}{lacking}")
    if saved["format"] != _FORMAT:
        raise ValueError(
            f"expected a state of format {_FORMAT} but got {saved['format']!r}; use the rvsm that wrote it"
        )
    if saved["method"] != method:
        raise ValueError(f"expected the state of a method {method!r} but got that of {saved['method']!r}")
    ours, theirs = {layer.name: list(layer.w.shape) for layer in layers}, saved["layers"]
    missing, unexpected = sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys())
    if missing or unexpected:
        raise ValueError(
            "the state is of another model or another selection of layers:"
            f" missing {', '.join(missing) or 'none'}; unexpected {', '.join(unexpected) or 'none'}"
        )
    for name, shape in ours.items():
        if list(theirs[name]["shape"]) != shape:
            raise ValueError(f"the state's {name!r} has shape {theirs[name]['shape']} but the model's has {shape}")
        _check_tensors(saved, name, shape)


def _check_tensors(saved: Mapping[str, Any], name: str, shape: list[int]) -> None:
    for kind, kept in saved["memory"].items():
        if name in kept and list(kept[name].shape) != shape:
            raise ValueError(
                f"the state's {kind} of {name!r} has shape {list(kept[name].shape)} but should have {shape}"
            )
    packed = saved["support"].get(name)
    if packed is not None and (packed.dtype != torch.uint8 or packed.numel() != (torch.Size(shape).numel() + 7) // 8):
        raise ValueError(f"the state's support of {name!r} does not have one bit for each of its weights")


def restore(saved: Mapping[str, Any], layers: Sequence[Layer]) -> None:
    """Give the layers the λ and β of a saved state."""
    for layer in layers:
        entry = saved["layers"][layer.name]
        layer.beta = entry["beta"]
        lam = entry["lam"]
        layer.penalty = None if lam is None or layer.template is None else replace(layer.template, lam=lam)
