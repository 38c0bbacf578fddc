"""Weights that are no parameters but computed from some, at each forward pass."""

import warnings
from collections.abc import Iterable, Iterator

from torch import nn
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.weight_norm import WeightNorm

_REMOVE = (
    "remove the computation first (torch.nn.utils.parametrize.remove_parametrizations, remove_weight_norm,"
    " remove_spectral_norm or prune.remove), so that the weight is a parameter again"
)


def warn_of_computed(name: str) -> None:
    """Say that a weight by the rule of types is not sparsified, since it is no parameter."""
    warnings.warn(
        f"{name!r} is computed from other parameters (weight_norm, spectral_norm, prune, …) and is not sparsified;"
        f" {_REMOVE}",
        stacklevel=7,
    )


def require_no_directions(model: nn.Module, names: Iterable[str]) -> None:
    """Raise if one of the named parameters is the direction v of a weight norm w = g·v/‖v‖, rows of which may not be 0.

    g may be sparsified: its zeros are rows of zeros in w.
    """
    if found := sorted(set(names) & set(_directions(model))):
        raise ValueError(
            f"{found[0]!r} is the direction v of a weight norm w = g·v/‖v‖, and a row of v that is zero makes w NaN;"
            f" {_REMOVE}"
        )


def _directions(model: nn.Module) -> Iterator[str]:
    """Yield the names of the directions, of both kinds of weight norm that torch has."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        before = f"{prefix}." if prefix else ""
        yield from (f"{before}{hook.name}_v" for hook in module._forward_pre_hooks.values() if type(hook) is WeightNorm)
        if isinstance(module, ParametrizationList) and any(isinstance(part, _WeightNorm) for part in module):
            yield f"{before}original1"
