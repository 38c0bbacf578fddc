"""The draft: a network that is still being changed; a list of nodes in order, each with an operation and its sources.

An operation's own numbers of values are filled in when the draft becomes a plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from rvsm.runtime.plan.axes import MAP
from rvsm.runtime.plan.operation import Operation, Pair, Shape
from rvsm.runtime.plan.operations import Convolution, Pointwise
from rvsm.runtime.plan.plan import Output, Plan, Weights

Floats = NDArray[np.float32]


@dataclass(eq=False)
class Node:
    """A value and how it is made; an input has no operation.

    ``operation`` names its sources by placeholders; ``sources`` are the nodes. ``axes`` are those of the network's
    tensor, which matter while the network is translated and where a value comes in or goes out.
    """

    operation: Operation | None
    sources: list["Node"]
    shape: Shape
    axes: str = MAP
    weights: Floats | None = None
    bias: Floats | None = None

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


@dataclass(eq=False)
class Draft:
    """Nodes in an order in which each comes after its sources; what is not needed for the outputs may be among them.

    ``takes`` and ``gives`` are the values of the captured graph that the inputs and outputs stand for; ``leaving`` are
    the axes with which the outputs leave.
    """

    inputs: list[Node]
    nodes: list[Node]
    outputs: list[Node]
    takes: list[fx.Node]
    gives: list[fx.Node]
    leaving: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.leaving = [node.axes for node in self.outputs]

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
        biases = {k: node.bias for k, node in enumerate(self.nodes) if node.bias is not None}
        outputs = [Output(number[node], axes) for node, axes in zip(self.outputs, self.leaving, strict=True)]
        shapes, axes = [node.shape for node in self.inputs], [node.axes for node in self.inputs]
        return Plan(tuple(shapes), tuple(operations), tuple(outputs), weights, biases, tuple(axes))


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
    """Return the node of an operation, with the axes of its first source."""
    return Node(operation, sources, operation.shape([source.shape for source in sources]), sources[0].axes)


def with_weights(operation: Convolution, source: Node, weights: Tensor | Floats, bias: Tensor | Floats | None) -> Node:
    """Return the node of a convolution with its weights and its bias, zero if there is none."""
    made = node(operation, [source])
    made.weights = array(weights) if isinstance(weights, Tensor) else weights
    zero = np.zeros(operation.channels, dtype=np.float32)
    made.bias = zero if bias is None else array(bias) if isinstance(bias, Tensor) else bias
    return made


def affine(name: str, x: Node, scale: Floats, shift: Floats) -> Node:
    """Return scale·x + shift, channel by channel, as a convolution of one tap."""
    channels = x.shape[0]
    operation = Convolution(name=name, source=0, channels=channels, kernel=(1, 1), groups=channels)
    return with_weights(operation, x, scale.reshape(-1, 1, 1, 1), shift)


def same(source: Node) -> Node:
    """Return a node that stands for its source; it is removed with the others that do nothing."""
    return node(Pointwise(name="identity", operation="none", a=0), [source])


def is_node(*values: Any) -> bool:
    """Return whether all of these are values of the network."""
    return all(isinstance(value, Node) for value in values)


def is_spatial(x: Any) -> bool:
    """Return whether this is a map or a line of positions, with the channels first, as convolutions take them."""
    return isinstance(x, Node) and x.axes in ("chw", "cw")


def is_constant(value: Any) -> TypeGuard[Tensor]:
    """Return whether this is a float32 tensor."""
    return isinstance(value, Tensor) and value.dtype == torch.float32


def array(tensor: Tensor) -> Floats:
    """Return a tensor as an array of its own: the model may train on."""
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float32, order="C")


def pair(value: int | Sequence[int], x: Node, usual: int = 1) -> Pair:
    """Return a number, or a list of one or two, as height and width; a line's height has what is ``usual``."""
    numbers = [value] if isinstance(value, int) else list(value)
    if x.axes == "cw":
        (width,) = numbers
        return usual, width
    return (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
