"""The part of a method's state that describes its layers, and the check that a saved state fits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rvsm.splitting.layers import Layer, Layers
from rvsm.splitting.zeros import is_mask
from rvsm.timing import Profile
from rvsm.timing.file import decode, encode

_FORMAT = 1
_AWAY = "w"
"""The kind of memory under which w is saved while the model holds v."""

_BEFORE = {"gradient": "w", "pull": "None"}
"""Implicit values from before these options existed."""


def of_layers(method: str, settings: Mapping[str, str], layers: Layers) -> dict[str, Any]:
    """Return the part of a state that identifies it, with the λ, β and memory of each layer."""
    away = {layer.name: layer.away for layer in layers if layer.away is not None}
    memory: dict[str, dict[str, Tensor]] = {**layers.memory, **({_AWAY: away} if away else {})}
    return {
        "format": _FORMAT,
        "method": method,
        "settings": dict(settings),
        "layers": {
            layer.name: {
                "shape": list(layer.parameter.shape),
                "penalty": repr(layer.template),
                "groups": repr(layer.groups),
                "sparsity": layer.sparsity,
                "beta": layer.beta,
                "lam": None if layer.penalty is None else layer.penalty.lam,
                "trained": layer.trained,
            }
            for layer in layers
        },
        "memory": {
            kind: {layer.name: layer.whole(kept[layer.name].clone()) for layer in layers if layer.name in kept}
            for kind, kept in memory.items()
        },
    }


def check(
    saved: Mapping[str, Any], method: str, settings: Mapping[str, str], layers: Sequence[Layer], keeps: Sequence[str]
) -> None:
    """Raise, before anything is changed, if a saved state is from another method, other options or other layers."""
    _check_shape(saved, method)
    if saved["format"] != _FORMAT:
        raise ValueError(
            f"expected a state of format {_FORMAT} but got {saved['format']!r}; use the rvsm version that wrote it"
        )
    if saved["method"] != method:
        raise ValueError(f"expected a state of the method {method!r} but got one of {saved['method']!r}")
    ours, theirs = {layer.name: layer for layer in layers}, saved["layers"]
    missing, unexpected = sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys())
    if missing or unexpected:
        raise ValueError(
            "the state is from another model or another selection of layers:"
            f" missing {', '.join(missing) or 'none'}; unexpected {', '.join(unexpected) or 'none'}"
        )
    targeted = settings.get("budget", "None") != "None"
    for name, layer in ours.items():
        if list(theirs[name]["shape"]) != list(layer.parameter.shape):
            raise ValueError(
                f"{name!r} has shape {theirs[name]['shape']} in the state but"
                f" {list(layer.parameter.shape)} in the model"
            )
        own = {"penalty": repr(layer.template), "groups": repr(layer.groups), "sparsity": layer.sparsity}
        for option, value in own.items():
            _require_same(f"{option} of {name!r}", theirs[name][option], value)
        _check_numbers(theirs[name], layer, lam_follows=targeted or bool(saved["support"]))
    for option, value in settings.items():
        _require_same(option, saved["settings"].get(option, _BEFORE.get(option)), value)
    _check_tensors(saved, ours, keeps)


def of_profile(times: Profile | None) -> dict[str, str]:
    """Return the part of a state that holds the times of the layers, if the target is a time."""
    return {} if times is None else {"profile": encode(times)}


def profile_of(saved: Mapping[str, Any], given: Profile | None) -> Profile:
    """Return the profile in a state; it must be the ``given`` one, unless that is None because it was measured.

    A measurement is never the same twice, and the training goes on with the times that it began with.
    """
    try:
        found = decode(saved["profile"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the state's profile is missing or damaged ({error})") from None
    if given is not None:
        _require_same("profile", found.digest, given.digest)
    return found


def restore(saved: Mapping[str, Any], layers: Sequence[Layer]) -> None:
    """Give the layers the λ, β and memory of a saved state."""
    for layer in layers:
        kept = {kind: tensors[layer.name] for kind, tensors in saved["memory"].items() if layer.name in tensors}
        layer.away = kept.pop(_AWAY, None)
        layer.remember(kept)
        entry = saved["layers"][layer.name]
        layer.beta, layer.trained, lam = entry["beta"], entry["trained"], entry["lam"]
        layer.penalty = None if lam is None or layer.template is None else replace(layer.template, lam=lam)


def _check_shape(saved: Any, method: str) -> None:
    """Raise unless a state has all its entries, each of the right type."""
    kinds: dict[str, type] = {
        "format": int,
        "method": str,
        "settings": Mapping,
        "layers": Mapping,
        "step": int,
        "finalized": bool,
        "support": Mapping,
        "memory": Mapping,
    }
    if not isinstance(saved, Mapping):
        raise ValueError(f"expected the state_dict() of a {method} but got a {type(saved).__name__}")
    for key, kind in kinds.items():
        if not isinstance(saved.get(key), kind):
            raise ValueError(
                f"expected the state_dict() of a {method} but its {key!r} is {type(saved.get(key)).__name__}, not"
                f" {kind.__name__}"
            )
    keys = ("shape", "penalty", "groups", "sparsity", "beta", "lam", "trained")
    for name, entry in saved["layers"].items():
        if (
            not isinstance(entry, Mapping)
            or any(key not in entry for key in keys)
            or entry["trained"] not in (True, False)
        ):
            raise ValueError(f"the state's entry for {name!r} is damaged; it should contain {', '.join(keys)}")
    if saved["step"] < 0:
        raise ValueError(f"the state's step must be ≥ 0 but is {saved['step']}")


def _check_numbers(entry: Mapping[str, Any], layer: Layer, *, lam_follows: bool) -> None:
    """Raise unless λ and β are numbers, or missing because training sets them or fixed zeros make them unused."""
    lam = None if layer.penalty is None else layer.penalty.lam
    for key, ours, may_lack in (("beta", layer.beta, layer.rate is not None), ("lam", lam, lam_follows)):
        value = entry[key]
        missing = value is None and (ours is None or may_lack)
        if not missing and not (isinstance(value, float | int) and 0 < value < float("inf")):
            raise ValueError(f"the state's {key} for {layer.name!r} must be > 0 and finite but is {value!r}")


def _check_tensors(saved: Mapping[str, Any], layers: Mapping[str, Layer], keeps: Sequence[str]) -> None:
    for kind, kept in saved["memory"].items():
        if kind not in (*keeps, _AWAY) or not isinstance(kept, Mapping) or not kept.keys() <= layers.keys():
            raise ValueError(f"the state's memory {kind!r} does not belong to these layers")
        for name, value in kept.items():
            if not torch.is_tensor(value) or value.shape != layers[name].parameter.shape:
                raise ValueError(
                    f"the state's {kind} for {name!r} is not a tensor of shape {list(layers[name].parameter.shape)}"
                )
            layers[name].part_of(value)  # raises if it is divided in another way
    if len({frozenset(saved["memory"].get(kind, ())) for kind in keeps}) > 1:
        raise ValueError(f"the state's memory must have {' and '.join(keeps)} for the same layers")
    for name, packed in saved["support"].items():
        if name not in layers or not is_mask(packed, layers[name].parameter):
            raise ValueError(f"the state's support for {name!r} does not have one bit per weight")
    if saved["finalized"] and not saved["support"]:
        raise ValueError("the state is damaged: it is from a finalized method but has no support")


def _require_same(option: str, theirs: object, ours: object) -> None:
    if theirs != ours:
        raise ValueError(
            f"the state was saved with a different {option}: {theirs}, but here it is {ours}; construct the method"
            " with the same arguments"
        )
