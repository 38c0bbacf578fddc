"""Find the channels that can be removed, and build a smaller network that computes the same outputs."""

import copy
import reprlib
import warnings
from typing import overload

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import Optimizer

from rvsm.coupling import Channels, find_channels
from rvsm.coupling.channels import computes, is_depthwise
from rvsm.example_inputs import difference, trial_inputs
from rvsm.shrinking.constants import constant_inputs
from rvsm.shrinking.cut import O, Take, carried_over, cut
from rvsm.splitting.weights import unwrap

TOLERANCE = 1e-4


@overload
def shrink(model: nn.Module, example_input: Tensor | tuple[Tensor, ...]) -> nn.Module: ...
@overload
def shrink(model: nn.Module, example_input: Tensor | tuple[Tensor, ...], *, optimizer: O) -> tuple[nn.Module, O]: ...
def shrink(
    model: nn.Module, example_input: Tensor | tuple[Tensor, ...], *, optimizer: Optimizer | None = None
) -> nn.Module | tuple[nn.Module, Optimizer]:
    """Return a smaller network without dead channels that computes the same as the model in evaluation mode.

    A channel is dead if no layer reads it, or if its value does not depend on the input: it is zero, or a constant that
    moves into the biases of the layers that read it. It is removed from all layers that it spans: residual sums,
    concatenations, depthwise and grouped convolutions, norms, linear layers after a flattening. Channels that must
    stay, such as the outputs of the network, are kept. Before returning, the smaller network is compared with the model
    on the example and on random inputs of its shape. This function requires the extra ``shrink``.

    The model is not changed. The result is an ordinary module of the same classes with smaller sizes: it can be
    trained, saved, compiled and exported. Weights that are still zero in it are not held; see `rvsm.keep_zeros`.

    Args:
        model: a network with channels of zeros, as produced by `finalize`.
        example_input: a batch, or a tuple of several inputs.
        optimizer: the optimizer that trains the model. If given, the result is a pair: the smaller network, and a new
            optimizer of the same class and options that trains it, with the momentum of all remaining weights.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3))
    >>> for w in model[0].parameters():
    ...     w.data[2:] = 0
    >>> shrink(model, torch.randn(1, 3, 8, 8))[0]
    Conv2d(3, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))

    """
    whole = unwrap(model)
    inputs = example_input if isinstance(example_input, tuple) else (example_input,)
    if not inputs or not all(torch.is_tensor(x) for x in inputs):
        raise TypeError(
            f"example_input must be a batch, as a tensor or a tuple of tensors, but is {reprlib.repr(example_input)}"
        )
    smaller = copy.deepcopy(whole)
    taken = _shrink(smaller, inputs)
    if not taken:
        warnings.warn(
            "shrink found no channels to remove and returns a copy; finalize() the sparsifier first, and use"
            " groups='coupled' to zero whole channels",
            stacklevel=2,
        )
    return smaller if optimizer is None else (smaller, carried_over(optimizer, whole, smaller, taken))


def _shrink(model: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, Take]:
    """Remove the dead channels of a model in place, and return how its parameters are cut."""
    original = copy.deepcopy(model).eval()
    channels = find_channels(original, inputs)
    try:
        constants = constant_inputs(original, inputs)
    except Exception as problem:  # any error that forward raises for NaN inputs
        raise ValueError(
            f"cannot find the values in {type(model).__name__} that do not depend on its input, because its forward"
            f" fails for an input of NaN: {problem}"
        ) from problem
    gone = _removable(original, channels, constants)
    taken = cut(model, channels, gone, constants)
    _require_equal(original, model, inputs)
    return taken


def _require_equal(original: nn.Module, smaller: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Raise if the smaller network computes different outputs."""
    tried = copy.deepcopy(smaller).eval()
    trials = trial_inputs([x.cpu() for x in inputs], len(inputs[0]))
    random = tuple(t.to(x.device) for t, x in zip(trials, inputs, strict=True))
    for trial in (inputs, random):
        with torch.no_grad():
            expected = original(*(x.clone() for x in trial))
            try:
                found = difference(tried(*(x.clone() for x in trial)), expected)
            except Exception as problem:  # mostly shapes that do not fit
                raise ValueError(
                    f"the smaller network fails: {problem}; forward of {type(original).__name__} probably depends on"
                    " the number of channels, for example through a view with fixed sizes; write -1 or x.shape instead"
                ) from problem
        if not found <= TOLERANCE:
            raise ValueError(
                f"the smaller network would differ by {found:.1e} of the largest output, so {type(original).__name__}"
                " has an operation that mixes channels in a way that could not be followed; nothing was changed"
            )


def _removable(model: nn.Module, channels: Channels, constants: dict[str, Tensor]) -> Tensor:
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
    used = (w != 0).reshape(*w.shape[:2], -1).any(dim=2)
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
