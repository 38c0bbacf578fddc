"""Cut channels out of a network's modules."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from rvsm.coupling import Channels
from rvsm.coupling.channels import is_depthwise

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
        if isinstance(module, _ConvNd | nn.Linear) and not is_depthwise(module):
            _fold(module, constants[name], ~inputs)
        for parameter, take in _cut(module, outputs, inputs).items():
            taken[f"{name}.{parameter}" if name else parameter] = take
    return taken


def _cut(module: nn.Module, outputs: Tensor, inputs: Tensor) -> dict[str, Take]:
    """Keep some outputs and inputs of a module, and return how its parameters are cut."""
    every = _taking(outputs)
    takes: dict[str, Take] = {"weight": every, "bias": every}
    left, read = int(outputs.sum()), int(inputs.sum())
    if isinstance(module, nn.Linear):
        takes["weight"] = _matrix(outputs, inputs, 1)
        module.out_features, module.in_features = left, read
    elif is_depthwise(module):
        module.in_channels = module.out_channels = module.groups = left  # type: ignore[assignment]
    elif isinstance(module, _ConvNd):
        takes["weight"] = _matrix(inputs, outputs, 1) if module.transposed else _matrix(outputs, inputs, module.groups)
        module.out_channels, module.in_channels = left, read
    elif isinstance(module, _BatchNorm | _InstanceNorm):
        module.num_features = left
        for name in ("running_mean", "running_var"):
            if getattr(module, name) is not None:
                setattr(module, name, every(getattr(module, name)))
    elif isinstance(module, nn.PReLU):
        module.num_parameters = left
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
