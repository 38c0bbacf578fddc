"""The draft: a network that is still being changed; a list of nodes in order, each with an operation and its sources.

An operation's own numbers of values are filled in when the draft becomes a plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.forms import MAP
from rvsm.runtime.operations import Concatenation, Convolution, Operation, Pointwise, Shape
from rvsm.runtime.plan import Output, Plan
from rvsm.runtime.weights import Weights

Floats = NDArray[np.float32]


@dataclass(eq=False)
class Node:
    """A value and how it is made; an input has no operation.

    ``operation`` names its sources by placeholders; ``sources`` are the nodes. ``form`` is that of the network's
    tensor, which matters while the network is translated and where a value comes in or goes out.
    """

    operation: Operation | None
    sources: list["Node"]
    shape: Shape
    form: str = MAP
    weights: Floats | None = None
    bias: Floats | None = None

    @property
    def name(self) -> str:
        """The name of the operation."""
        return "input" if self.operation is None else self.operation.name

    @property
    def convolution(self) -> Convolution | None:
        """The operation, if it is a convolution."""
        return self.operation if isinstance(self.operation, Convolution) else None


@dataclass(eq=False)
class Draft:
    """Nodes in an order in which each comes after its sources; what is not needed for the outputs may be among them."""

    inputs: list[Node]
    nodes: list[Node]
    outputs: list[Node]
    forms: list[str] = field(default_factory=list)  # those in which the outputs leave

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

    def exchange(self, old: Node, new: Node) -> None:
        """Let everybody who takes ``old`` take ``new``, and forget ``old``."""
        for node in self.nodes:
            node.sources = [new if source is old else source for source in node.sources]
        self.outputs = [new if output is old else output for output in self.outputs]
        self.nodes = [node for node in self.nodes if node is not old]

    def drop_unused(self) -> None:
        """Forget nodes that no output needs, and put the rest in order."""
        order: dict[Node, None] = {}
        for output in self.outputs:
            _visit(output, order)
        self.nodes = [node for node in order if node.operation is not None]

    def plan(self) -> Plan:
        """Return the plan."""
        self.drop_unused()
        number = {node: k for k, node in enumerate([*self.inputs, *self.nodes])}
        operations = [_numbered(node, [number[source] for source in node.sources]) for node in self.nodes]
        weights = {k: Weights.of(node.weights) for k, node in enumerate(self.nodes) if node.weights is not None}
        biases = {k: node.bias for k, node in enumerate(self.nodes) if node.bias is not None}
        outputs = [Output(number[node], form) for node, form in zip(self.outputs, self.forms, strict=True)]
        forms = tuple(node.form for node in self.inputs)
        return Plan(
            tuple(node.shape for node in self.inputs), tuple(operations), tuple(outputs), weights, biases, forms
        )


def _numbered(node: Node, sources: Sequence[int]) -> Operation:
    match node.operation:
        case Convolution() as operation:
            residual = sources[1] if len(sources) > 1 else None
            return replace(operation, source=sources[0], residual=residual, channels=node.shape[0])
        case Pointwise() as operation:
            return replace(operation, a=sources[0], b=sources[1] if len(sources) > 1 else None)
        case Concatenation() as operation:
            return replace(operation, parts=tuple(sources))
        case None:
            raise TypeError("an input has no operation")
        case operation:
            return replace(operation, source=sources[0])  # type: ignore[call-arg]


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
