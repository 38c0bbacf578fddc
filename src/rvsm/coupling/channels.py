"""The channels of a network, each with all the places at which it appears.

A *channel* is a unit that must be removed as a whole: an output of the convolution that computes it, the scale and
shift of the batch norm after it, the kernel of a depthwise convolution, and the inputs of all layers that read it. If
outputs of several layers are added, it includes the outputs of all of them. Torch-Pruning's dependency graph shows
which places depend on each other; a channel is a connected component of this relation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from rvsm.coupling.graph import Graph, Place, Side, trace


@dataclass(frozen=True, eq=False)
class Channels:
    """The channels of a network, numbered from 0.

    ``outputs`` and ``inputs`` have the channel of each output and input of a module, by the module's name; also for
    batch norm and other modules that treat each channel separately.
    """

    count: int
    outputs: dict[str, Tensor]
    inputs: dict[str, Tensor]
    kept: dict[int, str]  # why a channel cannot be removed, whatever its weights
    lost: dict[int, str]  # the operation that could not be followed, for each channel that reaches one


def find_channels(model: nn.Module, example_input: Tensor | tuple[Any, ...]) -> Channels:
    """Return the channels of a network, from one forward pass over an example; requires the extra ``shrink``.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    >>> channels = find_channels(model, torch.zeros(1, 3, 4, 4))
    >>> torch.equal(channels.outputs["0"], channels.inputs["1"])
    True
    >>> channels.inputs["4"][:8].unique().numel()      # each channel is four inputs of the linear layer
    2
    """
    graph = trace(model, example_input)
    places = _Places(graph)
    modules = {name: module for name, module in model.named_modules() if name in graph.nodes}
    sizes = {name: attrgetter(*of)(module) for name, module in modules.items() if (of := size_attributes(module))}
    outputs = {name: places.channels(name, "out", size) for name, (size, _) in sizes.items()}
    inputs = {name: places.channels(name, "in", size) for name, (_, size) in sizes.items()}
    kept, lost = dict(places.at(graph.kept)), dict(places.at(graph.lost))
    computed = {int(c) for name, found in outputs.items() if computes(modules[name]) for c in found}
    given = {c: "it is an input of the network" for c in range(len(places)) if c not in computed}
    return Channels(len(places), outputs, inputs, {**given, **kept}, lost)


def is_depthwise(module: nn.Module) -> TypeGuard[_ConvNd]:
    """Return whether a module is a convolution with one kernel for each channel."""
    return (
        isinstance(module, _ConvNd) and module.groups > 1 and module.groups == module.in_channels == module.out_channels
    )


def computes(module: nn.Module) -> TypeGuard[_ConvNd | nn.Linear]:
    """Return whether a module computes new channels from others."""
    return isinstance(module, _ConvNd | nn.Linear) and not is_depthwise(module)


def size_attributes(module: nn.Module) -> tuple[str, str] | None:
    """Return the attributes that hold the numbers of output and input channels; None if a module has no such."""
    if isinstance(module, _ConvNd):
        return "out_channels", "in_channels"
    if isinstance(module, nn.Linear):
        return "out_features", "in_features"
    if isinstance(module, _BatchNorm | _InstanceNorm):
        return "num_features", "num_features"
    several = isinstance(module, nn.PReLU) and module.num_parameters > 1
    return ("num_parameters", "num_parameters") if several else None


class _Places:
    """Places in a graph, in sets that form one channel each; sets are numbered on first use."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._above: dict[Place, Place] = {}
        self._numbers: dict[Place, int] = {}
        for one, other in graph.joined:
            self._above[self._root(one)] = self._root(other)

    def __len__(self) -> int:
        return len(self._numbers)

    def channels(self, module: str, side: Side, size: int) -> Tensor:
        """Return the channel of each of a module's inputs or outputs."""
        node = self._graph.nodes[module]
        return torch.tensor([self._number(self._graph.place(node, side, i)) for i in range(size)], dtype=torch.long)

    def at(self, reasons: dict[int, str]) -> Iterator[tuple[int, str]]:
        """Yield each channel that reaches one of the nodes, with the reason given for that node."""
        for place in {place for pair in self._graph.joined for place in pair}:
            if place.node in reasons:
                yield self._number(place), reasons[place.node]

    def _number(self, place: Place) -> int:
        return self._numbers.setdefault(self._root(place), len(self._numbers))

    def _root(self, place: Place) -> Place:
        path = []
        while (above := self._above.get(place, place)) != place:
            path.append(place)
            place = above
        for each in path:
            self._above[each] = place
        return place
