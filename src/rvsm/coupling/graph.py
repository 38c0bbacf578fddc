"""Torch-Pruning's dependency graph of a network, read as pairs of places that belong to one channel.

The graph comes from the autograd graph of one forward pass, so it reflects what ``forward`` does. Torch-Pruning assumes
that an unknown operation keeps channels separate. Here operations are identified by name, and a channel that reaches an
unknown one is lost: it must not be removed.
"""

import copy
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rvsm.coupling.operations import reason_to_stay, unknown_operation
from rvsm.extras import needed_by

Side = Literal["in", "out", "both"]


class Place(NamedTuple):
    """A channel at a node of the graph: the index of an input, of an output, or of both if they are the same."""

    node: int
    side: Side
    number: int


@dataclass
class Graph:
    """The contents of the dependency graph, whose nodes have numbers."""

    nodes: dict[str, int] = field(default_factory=dict)  # of modules, by their names
    channelwise: dict[int, bool] = field(default_factory=dict)  # whether inputs and outputs are the same channels
    joined: list[tuple[Place, Place]] = field(default_factory=list)  # pairs of places that belong to one channel
    kept: dict[int, str] = field(default_factory=dict)  # why the channels at a node must stay
    lost: dict[int, str] = field(default_factory=dict)  # the operation at a node that could not be followed

    def place(self, node: int, side: Side, number: int) -> Place:
        """Return a place in its canonical form."""
        return Place(node, "both" if self.channelwise[node] else side, number)


def trace(model: nn.Module, example_input: Tensor | tuple[Any, ...]) -> Graph:
    """Return the dependency graph of a network; the network is not changed."""
    kinds = _torch_pruning().ops.OPTYPE
    built = _torch_pruning().DependencyGraph()
    model = copy.deepcopy(model).requires_grad_(True)
    sources: set[Any] = set()
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        try:
            built.build_dependency(
                model,
                _as_sources(example_input, sources),
                forward_fn=lambda network, inputs: network(*inputs),
                output_transform=_ends,
                verbose=False,
            )
        except Exception as problem:  # any error of the network, or of Torch-Pruning
            raise ValueError(
                f"cannot follow the channels of {type(model).__name__}: {type(problem).__name__}: {problem}"
            ) from problem
    graph = Graph()
    names = {module: name for name, module in model.named_modules()}
    uses = Counter(id(w) for module in model.modules() for w in module.parameters(recurse=False))
    numbers = {node: number for number, node in enumerate(built.module2node.values())}
    for node, number in numbers.items():
        kind = kinds(node.type).name
        pruner = built.get_pruner_of_module(node.module)
        graph.channelwise[number] = pruner.prune_in_channels == pruner.prune_out_channels
        if node.module in names:
            graph.nodes[names[node.module]] = number
        if node.grad_fn in sources:
            graph.kept[number] = "it is an input of the network"
        elif reason := reason_to_stay(kind, node, uses):
            graph.kept[number] = reason
        elif operation := unknown_operation(kind, node):
            graph.lost[number] = operation
    graph.joined += _Walk(built, numbers, graph).pairs()
    return graph


def _torch_pruning() -> Any:
    with needed_by("following channels through layers", extra="shrink"):
        import torch_pruning
    return torch_pruning


def _as_sources(example_input: Any, sources: set[Any]) -> tuple[Any, ...]:
    """Return the inputs as results of operations, so that each has a node in the graph; add these to ``sources``."""
    inputs = example_input if isinstance(example_input, tuple) else (example_input,)
    found = [x.detach().requires_grad_().clone() if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs]
    sources |= {x.grad_fn for x in found if torch.is_tensor(x) and x.grad_fn is not None}
    return tuple(found)


def _ends(outputs: Any) -> list[Tensor]:
    """Return outputs as results of extra operations, which Torch-Pruning treats as the end of the network."""
    found = [y * 1 for y in tree_leaves(outputs) if torch.is_tensor(y) and y.grad_fn is not None]
    if not found:
        raise ValueError("its outputs do not depend on its parameters through differentiable operations")
    return found


class _Index(NamedTuple):
    """The index of a channel as Torch-Pruning's mappings expect it: the current and the original index."""

    idx: int
    root_idx: int


@dataclass(frozen=True)
class _Walk:
    """Follows all channels of all modules along the dependencies."""

    built: Any
    numbers: dict[Any, int]
    graph: Graph

    def pairs(self) -> Iterator[tuple[Place, Place]]:
        """Yield the pairs of places that a dependency joins into one channel."""
        seen: set[Place] = set()
        ahead = deque(self._starts())
        while ahead:
            node, trigger, channels = ahead.popleft()
            new = [c for c in dict.fromkeys(channels) if self._place(node, trigger, c) not in seen]
            seen.update(self._place(node, trigger, c) for c in new)
            for dependency in node.dependencies if new else ():
                if dependency.is_triggered_by(trigger):
                    mapped = self._mapped(dependency, new)
                    target, handler = dependency.target, dependency.handler
                    for c in mapped:
                        yield self._place(node, trigger, c.root_idx), self._place(target, handler, c.idx)
                    ahead.append((target, handler, [c.idx for c in mapped]))

    def _starts(self) -> Iterator[tuple[Any, Any, list[int]]]:
        """Yield the outputs and inputs of all modules whose number of channels is known."""
        for node in self.numbers:
            pruner = self.built.get_pruner_of_module(node.module)
            for handler, size in (
                (pruner.prune_out_channels, self.built.get_out_channels(node)),
                (pruner.prune_in_channels, self.built.get_in_channels(node)),
            ):
                if size is not None:
                    yield node, handler, list(range(size))

    def _mapped(self, dependency: Any, channels: list[int]) -> list[Any]:
        """Return the positions of a dependency's source channels in its target."""
        mapped: list[Any] = [_Index(c, c) for c in channels]
        for mapping in dependency.index_mapping:
            mapped = mapped if mapping is None else mapping(mapped)
        return mapped

    def _place(self, node: Any, handler: Any, channel: int) -> Place:
        out = handler == self.built.get_pruner_of_module(node.module).prune_out_channels
        return self.graph.place(self.numbers[node], "out" if out else "in", channel)
