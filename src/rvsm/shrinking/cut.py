"""Cut channels out of a network's modules, and out of the state of its optimizer."""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import Optimizer

from rvsm.coupling import Channels
from rvsm.coupling.channels import computes, is_depthwise, size_attributes

O = TypeVar("O", bound=Optimizer)  # noqa: E741 - the usual letter
Take = Callable[[Tensor], Tensor]
"""Returns what is left of a tensor with the old shape of a parameter, such as the parameter or its momentum."""


def cut(model: nn.Module, channels: Channels, gone: Tensor, constants: dict[str, Tensor]) -> dict[str, Take]:
    """Remove channels from a model in place, and return, by name, how each changed parameter is cut."""
    taken: dict[str, Take] = {}
    for name in channels.outputs.keys() | channels.inputs.keys():
        module = model.get_submodule(name)
        outputs = ~gone[channels.outputs[name]] if name in channels.outputs else None
        inputs = ~gone[channels.inputs[name]] if name in channels.inputs else None
        if outputs is None or inputs is None or bool(outputs.all() and inputs.all()):
            continue
        if computes(module):
            _fold(module, constants[name], ~inputs)
        for parameter, take in _cut(module, outputs, inputs).items():
            taken[f"{name}.{parameter}" if name else parameter] = take
    return taken


def _cut(module: nn.Module, outputs: Tensor, inputs: Tensor) -> dict[str, Take]:
    """Keep some outputs and inputs of a module, and return how its parameters are cut."""
    every = _taking(outputs)
    takes: dict[str, Take] = {"weight": every, "bias": every}
    if is_depthwise(module):
        module.groups = int(outputs.sum())
    elif isinstance(module, nn.Linear):
        takes["weight"] = _matrix(outputs, inputs, 1)
    elif isinstance(module, _ConvNd):
        takes["weight"] = _matrix(inputs, outputs, 1) if module.transposed else _matrix(outputs, inputs, module.groups)
    for attribute, kept in zip(size_attributes(module) or (), (outputs, inputs), strict=True):
        setattr(module, attribute, int(kept.sum()))
    for name in ("running_mean", "running_var"):
        if getattr(module, name, None) is not None:
            setattr(module, name, every(getattr(module, name)))
    found = {name: take for name, take in takes.items() if module._parameters.get(name) is not None}
    for name, take in found.items():
        old = module._parameters[name]
        assert old is not None
        module._parameters[name] = nn.Parameter(take(old.detach()), requires_grad=old.requires_grad)
    return found


def _taking(kept: Tensor) -> Take:
    return lambda t: t[kept.to(t.device)].clone()


def _matrix(rows: Tensor, columns: Tensor, groups: int) -> Take:
    """Take some rows and, within each group of a convolution, some columns."""

    def take(t: Tensor) -> Tensor:
        parts = zip(t.chunk(groups), rows.chunk(groups), columns.chunk(groups), strict=True)
        return torch.cat([part[r.to(t.device)][:, c.to(t.device)] for part, r, c in parts])

    return take


@torch.no_grad()
def _fold(module: _ConvNd | nn.Linear, constants: Tensor, removed: Tensor) -> None:
    """Move the contribution of removed constant inputs into the bias of a layer."""
    w = module.weight.detach()
    values = torch.where(removed.to(w.device), constants.to(w.device), 0.0).nan_to_num().double()  # NaN: not read
    if not values.any() or (isinstance(module, _ConvNd) and module.transposed):
        return
    groups = module.groups if isinstance(module, _ConvNd) else 1
    sums = w.double().flatten(2).sum(dim=2) if w.dim() > 2 else w.double()
    parts = zip(sums.chunk(groups), values.chunk(groups), strict=True)
    total = torch.cat([part @ value for part, value in parts]).to(w.dtype)
    if not total.any():
        return
    if module.bias is None:
        module.bias = nn.Parameter(total, requires_grad=w.requires_grad)
    else:
        module.bias.add_(total)


def carried_over(optimizer: O, model: nn.Module, smaller: nn.Module, taken: Mapping[str, Take]) -> O:
    """Return an optimizer of the same class and options for the smaller network; the given one is not changed.

    State such as momentum is kept for the weights that are left. A bias that exists only in the smaller network joins
    the parameter group of its layer's weight.
    """
    names = {id(w): name for name, w in model.named_parameters()}
    parameters = dict(smaller.named_parameters())
    before = set(names.values())
    new = [name for name in parameters if name not in before]
    groups = []
    state: dict[Tensor, dict[str, Any]] = {}
    for group in optimizer.param_groups:
        known = [names.get(id(w)) for w in group["params"]]
        if None in known:
            raise ValueError(
                "the optimizer trains parameters that the model does not have; pass the one that trains this model"
            )
        added = [name for name in new if f"{name.removesuffix('bias')}weight" in known]
        groups.append({**group, "params": [parameters[name] for name in [*known, *added] if name is not None]})
        for name, w in zip(known, group["params"], strict=True):
            if name is not None and w in optimizer.state:
                state[parameters[name]] = _cut_state(optimizer.state[w], w, taken.get(name), name)
    # Like unpickling: hooks, including those of a sparsifier, stay with the original optimizer.
    carried = copy.copy(optimizer)
    carried.param_groups, carried.state = groups, defaultdict(dict, state)
    return carried


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
