"""An optimizer for a smaller network, with the state of the original one."""

import copy
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.shrinking.cut import Take

O = TypeVar("O", bound=Optimizer)  # noqa: E741 - the usual letter


def carried_over(optimizer: O, model: nn.Module, smaller: nn.Module, taken: Mapping[str, Take]) -> O:
    """Return an optimizer of the same class and options for the smaller network; the given one is not changed.

    State such as momentum is kept for the weights that are left. A bias that exists only in the smaller network joins
    the parameter group of its layer's weight.
    """
    names = {id(w): name for name, w in model.named_parameters()}
    parameters = dict(smaller.named_parameters())
    groups = []
    state: dict[Tensor, dict[str, Any]] = {}
    for group in optimizer.param_groups:
        known = [names.get(id(w)) for w in group["params"]]
        if None in known:
            raise ValueError(
                "the optimizer trains parameters that the model does not have; pass the one that trains this model"
            )
        added = [name for name in _new(parameters, names.values()) if _weight_of(name) in known]
        groups.append({**group, "params": [parameters[name] for name in [*known, *added] if name is not None]})
        for name, w in zip(known, group["params"], strict=True):
            if name is not None and w in optimizer.state:
                state[parameters[name]] = _cut_state(optimizer.state[w], w, taken.get(name), name)
    # Like unpickling: hooks, including those of a sparsifier, stay with the original optimizer.
    carried = copy.copy(optimizer)
    carried.param_groups, carried.state = groups, defaultdict(dict, state)
    return carried


def _new(parameters: Mapping[str, Tensor], known: Any) -> list[str]:
    before = set(known)
    return [name for name in parameters if name not in before]


def _weight_of(bias: str) -> str:
    return f"{bias.removesuffix('bias')}weight"


def _cut_state(kept: Mapping[str, Any], w: Tensor, take: Take | None, name: str) -> dict[str, Any]:
    """Return the optimizer state for what is left of a weight."""
    cut: dict[str, Any] = {}
    for key, value in kept.items():
        if torch.is_tensor(value) and value.shape == w.shape and w.dim() > 0:
            cut[key] = value.clone() if take is None else take(value)
        elif torch.is_tensor(value) and value.numel() > 1 and take is not None:
            raise ValueError(
                f"the optimizer's {key!r} for {name!r} has shape {list(value.shape)}, not that of the weight, and"
                " cannot be cut with it; call shrink without optimizer= and create a new optimizer"
            )
        else:
            cut[key] = copy.deepcopy(value)
    return cut
