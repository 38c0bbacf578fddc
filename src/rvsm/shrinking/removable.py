"""Which channels can be removed without changing the outputs."""

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from rvsm.coupling import Channels
from rvsm.coupling.channels import computes, is_depthwise


def removable(model: nn.Module, channels: Channels, constants: dict[str, Tensor]) -> Tensor:
    """Return which channels can be removed, given the constant values among the inputs of each layer.

    A channel can be removed if every layer that reads it has no weights for it, or reads a constant that can be
    replaced: zero, or a value that moves into the layer's bias. The latter requires a layer without zero padding,
    because with padding the value is not constant at the border.
    """
    gone = torch.zeros(channels.count, dtype=torch.bool)
    while not torch.equal(gone, more := _unneeded(model, channels, constants, gone)):
        gone = more
    for channel, operation in channels.lost.items():
        if gone[channel]:
            raise ValueError(
                f"cannot follow the channels through the operation {operation!r}, where there are channels to remove;"
                " the network was not changed. Use layers and operations that treat each channel separately, or keep"
                " the layers before it dense with exclude=[...]"
            )
    while _even_out(model, channels, gone):
        pass
    return gone


def _unneeded(model: nn.Module, channels: Channels, constants: dict[str, Tensor], gone: Tensor) -> Tensor:
    """Return the channels that are not needed if some are already gone, including these."""
    unneeded = torch.ones(channels.count, dtype=torch.bool)
    for name, read in channels.inputs.items():
        module = model.get_submodule(name)
        if computes(module):
            spared = _unread(module, ~gone[channels.outputs[name]]) | _absorbs(module, constants[name]).cpu()
            unneeded[read[~spared]] = False
    unneeded[list(channels.kept)] = False
    return unneeded


def _unread(module: _ConvNd | nn.Linear, outputs: Tensor) -> Tensor:
    """Return which inputs have no weights in a layer with only some outputs left."""
    w = module.weight.detach().cpu()
    used = (w != 0).view(*w.shape[:2], -1).any(dim=2)
    groups, transposed = (module.groups, module.transposed) if isinstance(module, _ConvNd) else (1, False)
    parts = zip(used.chunk(groups), outputs.chunk(groups), strict=True)
    return ~torch.cat([u[:, o].any(dim=1) if transposed else u[o].any(dim=0) for u, o in parts])


def _absorbs(module: _ConvNd | nn.Linear, constants: Tensor) -> Tensor:
    """Return which inputs a layer does not need because their values are constant."""
    foldable = True
    if isinstance(module, _ConvNd):
        unpadded = module.padding == "valid" or not (isinstance(module.padding, str) or any(module.padding))
        foldable = not module.transposed and (unpadded or module.padding_mode != "zeros")
    return constants.isfinite() if foldable else constants == 0


def _even_out(model: nn.Module, channels: Channels, gone: Tensor) -> bool:
    """Keep one more channel if a layer needs it; return whether there was such a layer.

    A layer needs at least one channel, and all groups of a grouped convolution need the same number.
    """
    for sides in (channels.outputs, channels.inputs):
        for name, at in sides.items():
            module = model.get_submodule(name)
            groups = module.groups if isinstance(module, _ConvNd) and not is_depthwise(module) else 1
            parts = at.view(groups, -1)
            needed = max(1, int((~gone[parts]).sum(dim=1).max()))
            for part in parts:
                if int((~gone[part]).sum()) < needed:
                    gone[part[gone[part]][0]] = False
                    return True
    return False
