"""The draft: a network that is still being changed; a list of nodes in order, each with an operation and its sources.

An operation's own numbers of values are filled in when the draft becomes a plan.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from rvsm.runtime.plan.axes import MAP, sizes_of
from rvsm.runtime.plan.operation import Operation, Shape
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Array, Output, Plan, Weights

Floats = NDArray[np.float32]


@dataclass(eq=False)
class Node:
    """A value and how it is made; an input has no operation.

    ``operation`` names its sources by placeholders; ``sources`` are the nodes. An input has the ``axes`` and ``sizes``
    of its array, may hold ``integer`` numbers, and may have a ``name``. ``others`` are the same numbers in other
    orders, made once.
    """

    operation: Operation | None
    sources: list["Node"]
    shape: Shape
    axes: str = MAP
    weights: Floats | None = None
    bias: Floats | None = None
    sizes: tuple[int, ...] | None = None
    integer: bool = False
    name: str = ""
    others: dict[Any, "Node"] = field(default_factory=dict)

    @property
    def convolution(self) -> Convolution | None:
        """The operation, if it is a convolution."""
        return self.operation if isinstance(self.operation, Convolution) else None

    @property
    def all_weights(self) -> Floats:
        """The weights of a node that has some."""
        assert self.weights is not None
        return self.weights

    @property
    def all_biases(self) -> Floats:
        """The biases of a node that has weights."""
        assert self.bias is not None
        return self.bias


Key = fx.Node | Node  # of a value: in the captured graph, or one that a native part makes for another


class Leaving(NamedTuple):
    """The array in which an output leaves: its axes and sizes for one image, and the dimension of the images."""

    axes: str
    sizes: tuple[int, ...]
    batch: int = 0


@dataclass(eq=False)
class Draft:
    """Nodes in an order in which each comes after its sources; what is not needed for the outputs may be among them.

    ``takes`` and ``gives`` are the values that the inputs and outputs stand for: those of the captured graph, or nodes
    of other drafts. ``leaving`` are the arrays in which the outputs leave, and ``names`` their names, if they have any.
    """

    inputs: list[Node]
    nodes: list[Node]
    outputs: list[Node]
    takes: list[Key]
    gives: list[Key]
    leaving: list[Leaving]
    names: tuple[str, ...] = ()

    def uses(self) -> dict[Node, list[Node]]:
        """Return, for each node, the nodes that take it, once for each time."""
        result: dict[Node, list[Node]] = {node: [] for node in [*self.inputs, *self.nodes]}
        for node in self.nodes:
            for source in node.sources:
                result[source].append(node)
        return result

    def only_use(self, node: Node, uses: dict[Node, list[Node]]) -> Node | None:
        """Return the single node that takes ``node``, if there is just one and it is no output."""
        return uses[node][0] if len(uses[node]) == 1 and node not in self.outputs else None

    def replace(self, old: Node, new: Node) -> None:
        """Replace ``old`` by ``new`` in all nodes that take it, and remove ``old``."""
        for node in self.nodes:
            node.sources = [new if source is old else source for source in node.sources]
        self.outputs = [new if output is old else output for output in self.outputs]
        self.nodes = [node for node in self.nodes if node is not old]

    def drop_unused(self) -> None:
        """Remove nodes that no output needs, and put the rest in order."""
        order: dict[Node, None] = {}
        for output in self.outputs:
            _visit(output, order)
        self.nodes = [node for node in order if node.operation is not None]

    def plan(self) -> Plan:
        """Return the plan."""
        self.drop_unused()
        number = {node: k for k, node in enumerate([*self.inputs, *self.nodes])}
        numbered = [(node.operation, [number[source] for source in node.sources]) for node in self.nodes]
        operations = [operation.taking(sources) for operation, sources in numbered if operation is not None]
        weights = {k: Weights.of(node.weights) for k, node in enumerate(self.nodes) if node.weights is not None}
        biases = {k: node.bias.copy() for k, node in enumerate(self.nodes) if node.bias is not None}
        left = zip(self.outputs, self.leaving, self.names or [""] * len(self.outputs), strict=True)
        outputs = [
            Output(number[node], axes, _unusual(node.shape, axes, sizes), name, batch)
            for node, (axes, sizes, batch), name in left
        ]
        shapes, axes = [node.shape for node in self.inputs], [node.axes for node in self.inputs]
        arrays = [Array(_unusual(node.shape, node.axes, node.sizes), node.integer, node.name) for node in self.inputs]
        return Plan(
            tuple(shapes), tuple(operations), tuple(outputs), weights, biases, tuple(axes), arrays=tuple(arrays)
        )


def _unusual(shape: Shape, axes: str, sizes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the sizes of an array if they do not follow from its axes."""
    return None if sizes == sizes_of(axes, shape) else sizes


def _visit(start: Node, order: dict[Node, None]) -> None:
    """Add ``start`` and all that it needs, sources first; without recursion, for networks of any depth."""
    stack: list[tuple[Node, Iterable[Node]]] = [(start, iter(start.sources))]
    path = {start}
    while stack:
        node, sources = stack[-1]
        following = next((source for source in sources if source not in order and source not in path), None)
        if following is None:
            stack.pop()
            order[node] = None
        else:
            path.add(following)
            stack.append((following, iter(following.sources)))


def node(operation: Operation, sources: list[Node]) -> Node:
    """Return the node of an operation."""
    return Node(operation, sources, operation.shape([source.shape for source in sources]))


def with_weights(operation: Operation, sources: list[Node], weights: Floats, bias: Floats | None = None) -> Node:
    """Return the node of an operation with its weights and its bias, zero if there is none."""
    made = node(operation, sources)
    made.weights = weights
    made.bias = np.zeros(operation.bias_size(weights.shape), dtype=np.float32) if bias is None else bias
    return made


def affine(name: str, x: Node, scale: Floats, shift: Floats) -> Node:
    """Return scale·x + shift, channel by channel, as a convolution of one tap."""
    channels = x.shape[0]
    operation = Convolution(name=name, source=0, channels=channels, kernel=(1, 1), groups=channels)
    return with_weights(operation, [x], scale.reshape(-1, 1, 1, 1), shift)


def is_constant(value: Any) -> TypeGuard[Tensor]:
    """Return whether this is a float32 tensor."""
    return isinstance(value, Tensor) and value.dtype == torch.float32


def array(tensor: Tensor) -> Floats:
    """Return a tensor as an array, of the same memory if it can be: a plan has copies of all of them."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float32)
