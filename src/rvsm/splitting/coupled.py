"""Turn layers that share channels into layers that share groups."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rvsm.coupling import Channels, find_channels
from rvsm.groups import Coupled
from rvsm.splitting.layers import Coupling, Layer, Layers
from rvsm.splitting.notices import warn
from rvsm.splitting.shards import is_distributed


def coupled(layers: Sequence[Layer], model: nn.Module | None, example_input: Tensor | tuple[Any, ...] | None) -> Layers:
    """Return the layers whose channels can be removed, with the biases and norms of these channels, coupled.

    A layer is left out with a warning if one of its channels must stay, because the network needs it or because the
    channel spans a layer that was not selected.
    """
    _require_coupled(layers)
    if model is None or example_input is None:
        raise ValueError(
            "groups='coupled' needs the module and example_input=, a batch that is used to trace the channels"
        )
    if any(is_distributed(layer.parameter) for layer in layers):
        raise ValueError(
            "groups='coupled' follows channels through the whole network; construct the method before the model is"
            " sharded, and attach it afterwards: it finds its parameters by their names"
        )
    channels = find_channels(model, example_input)
    selected = {id(layer.parameter): layer for layer in layers}
    found: list[Layer] = []
    reasons: dict[str, str] = {}
    for modules in _connected(channels):
        parameters = [(f"{m}.{k}" if m else k, m, w) for m in modules for k, w in _parameters(model.get_submodule(m))]
        matrices = [(name, selected.get(id(w))) for name, _, w in parameters if w.dim() > 1]
        if not (mine := [layer for _, layer in matrices if layer is not None]):
            continue
        if reason := _reason_to_stay(channels, modules, [name for name, layer in matrices if layer is None]):
            reasons.update(dict.fromkeys([layer.name for layer in mine], reason))
            continue
        _require_alike(mine)
        numbers = torch.unique(torch.cat([channels.outputs[m] for m in modules]))
        coupling = Coupling(len(numbers))
        for name, m, w in parameters:
            own = selected.get(id(w)) or replace(
                mine[0], name=name, parameter=w, convolution_groups=1, transposed=False
            )
            at = torch.searchsorted(numbers, channels.outputs[m]).to(w.device)
            found.append(replace(own, coupling=coupling, parts_of=at, memory={}))
    _warn_of_dense({layer.name: reasons.get(layer.name, "the forward pass does not use it") for layer in layers}, found)
    return Layers(found)


def _connected(channels: Channels) -> list[list[str]]:
    """Return the modules that compute channels, grouped so that modules with common channels are together."""
    sets: list[tuple[list[str], set[int]]] = []
    for name, numbers in channels.outputs.items():
        own = set(numbers.tolist())
        touching = [found for found in sets if not found[1].isdisjoint(own)]
        sets = [found for found in sets if found[1].isdisjoint(own)]
        sets.append(([*(m for modules, _ in touching for m in modules), name], own.union(*(n for _, n in touching))))
    return [modules for modules, _ in sets]


def _parameters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters that must be zero for a module's output to be zero."""
    if not isinstance(module, nn.PReLU):  # the slope does not matter for an input of zero
        for name in ("weight", "bias"):
            if (w := module._parameters.get(name)) is not None:
                yield name, w


def _reason_to_stay(channels: Channels, modules: Sequence[str], unselected: Sequence[str]) -> str | None:
    """Return why the channels of some modules must stay; None if all of them can be removed."""
    if unselected:
        return f"{unselected[0]!r}, with which it shares channels, is not selected"
    here = {int(c) for m in modules for c in channels.outputs[m]}
    for channel in here & channels.kept.keys():
        return channels.kept[channel]
    for channel in here & channels.lost.keys():
        return f"its channels cannot be followed through the operation {channels.lost[channel]!r}"
    return None


def _require_coupled(layers: Sequence[Layer]) -> None:
    for layer in layers:
        if not isinstance(layer.groups, Coupled):
            raise ValueError(
                f"groups='coupled' spans layers and must be used for all of them, but {layer.name!r} has"
                f" {type(layer.groups).__name__}(); give all layers the same groups, or leave it out with exclude=[...]"
            )


def _require_alike(layers: Sequence[Layer]) -> None:
    """Raise if layers that share channels have different options."""
    for layer in layers[1:]:
        for option in ("penalty", "beta", "sparsity", "groups"):
            if getattr(layer, option) != getattr(layers[0], option):
                raise ValueError(
                    f"{layers[0].name!r} and {layer.name!r} share channels and need the same {option}, but have"
                    f" {getattr(layers[0], option)!r} and {getattr(layer, option)!r}; give both the same overrides"
                )


def _warn_of_dense(reasons: dict[str, str], found: Sequence[Layer]) -> None:
    """Warn which of the selected layers stay dense, and why."""
    coupled_names = {layer.name for layer in found}
    dense = [name for name in reasons if name not in coupled_names]
    listed = "; ".join(f"{name!r}: {reasons[name]}" for name in dense[:5]) + ("; …" if len(dense) > 5 else "")
    if not found:
        raise ValueError(f"found no channels to remove: {listed}; use another network, or groups='filter'")
    if dense:
        warn(
            f"channels of {len(dense)} of the selected weights must stay; these weights stay dense and do not count:"
            f" {listed}."
            f" To make this explicit, write exclude=[{', '.join(map(repr, dense[:5]))}]"
        )
