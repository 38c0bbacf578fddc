"""Which operations the runtime takes and which stay in PyTorch: the graph in parts that run one after the other."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx

from rvsm.lowering.capture import Captured, module_name
from rvsm.lowering.draft import Draft, Node
from rvsm.lowering.translate import translate, value_shape
from rvsm.runtime.plan.axes import channels_last

Outside = tuple[str, str]  # the name of an operation in PyTorch, and the module that it stands in


@dataclass(eq=False)
class TorchPart:
    """Operations that stay in PyTorch."""

    nodes: list[fx.Node] = field(default_factory=list)

    @property
    def names(self) -> list[Outside]:
        """The names of the operations with their modules, except size queries and selections."""
        worth = [n for n in self.nodes if n.target is not operator.getitem and "sym_size" not in str(n.target)]
        return [(str(node.target).removesuffix(".default"), module_name(node)) for node in worth]


Part = Draft | TorchPart


def divide(captured: Captured) -> list[Part]:
    """Return the parts in the order in which they run."""
    return _Division(captured).parts()


class _Division:
    """What is known while a graph is divided: which of its nodes are ``native``, as which nodes of a draft.

    ``origin`` leads back from a draft's node to the graph's; ``depth`` is the number of a node's part.
    """

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.native, entries = _translated(captured)
        self.origin = {node: source for source, node in [*self.native.items(), *entries.items()]}
        self._measure()
        while idle := self._idle():
            for node in idle:
                del self.native[node]
            self._measure()

    def parts(self) -> list[Part]:
        """Return the parts in the order in which they run."""
        members: dict[int, list[fx.Node]] = {}
        for node in self.captured.nodes:
            if node in self.needed:
                members.setdefault(self.depth[node], []).append(node)
        levels = [members[level] for level in sorted(members)]
        return [self._draft(nodes) if nodes[0] in self.native else TorchPart(nodes) for nodes in levels]

    def _sources(self, node: fx.Node) -> Sequence[fx.Node]:
        """Return what a node takes: fewer values if it is native, since those of constants are in its weights."""
        if node not in self.native:
            return node.all_input_nodes
        return [self.origin[source] for source in self.native[node].sources]

    def _measure(self) -> None:
        """Find the needed nodes, and the number of each one's part: odd if native, larger than those it takes from."""
        self.needed: set[fx.Node] = set()
        waiting = list(self.captured.outputs)
        while waiting:
            node = waiting.pop()
            if node not in self.needed:
                self.needed.add(node)
                waiting += self._sources(node)
        self.depth: dict[fx.Node, int] = dict.fromkeys([*self.captured.inputs, *self.captured.tensors], 0)
        for node in self.captured.nodes:
            if node in self.needed:
                native = node in self.native
                before = [self.depth[s] + (native != (s in self.native)) for s in self._sources(node)]
                self.depth[node] = max([int(native), *before])

    def _idle(self) -> list[fx.Node]:
        """Return nodes of native parts without weights: beside other parts, no zeros pay for the way in and out."""
        inside = [node for node in self.needed if node in self.depth]
        working = {self.depth[n] for n in inside if n in self.native and self.native[n].weights is not None}
        alone = len({self.depth[node] for node in inside}) == 1
        return [] if alone else [n for n in inside if n in self.native and self.depth[n] not in working]

    def _leaves(self, node: fx.Node) -> bool:
        """Return whether a value is needed outside of the part that makes it."""
        if node in self.captured.outputs:
            return True
        users = [user for user in node.users if user in self.needed]
        return any(self.depth[user] != self.depth[node] and node in self._sources(user) for user in users)

    def _draft(self, nodes: list[fx.Node]) -> Draft:
        """Return a native part; values that others make are its inputs."""
        inside = {self.native[node] for node in nodes}
        entries: dict[fx.Node, Node] = {}
        for node in nodes:
            made = self.native[node]
            made.sources = [
                source
                if source in inside
                else entries.setdefault(self.origin[source], Node(None, [], source.shape, source.axes))
                for source in made.sources
            ]
        self.origin |= {entry: node for node, entry in entries.items()}
        gives = [node for node in nodes if self._leaves(node)]
        made_nodes, results = [self.native[node] for node in nodes], [self.native[node] for node in gives]
        return Draft(list(entries.values()), made_nodes, results, list(entries), gives)


def _translated(captured: Captured) -> tuple[dict[fx.Node, Node], dict[fx.Node, Node]]:
    """Return the nodes that the runtime can take, and those that stand for values from outside.

    Whether a tensor from outside has its channels first or last is decided by the first operation that takes it;
    one that can take it both ways gives what most of the network wants.
    """
    made: dict[fx.Node, Node] = {}
    entries: dict[fx.Node, Node] = {}

    def lookup(argument: Any, entering: dict[fx.Node, Node], last: bool) -> Any:
        if not isinstance(argument, fx.Node):
            return argument
        if argument in captured.tensors:
            return captured.tensors[argument]
        known = made.get(argument) or entries.get(argument) or entering.get(argument)
        if known is not None:
            return known
        shaped = value_shape(argument, captured.batch, last=last)
        if shaped is None or isinstance(argument.meta.get("val"), tuple | list):
            return argument
        return entering.setdefault(argument, Node(None, [], *shaped))

    wanted = _mostly_last(captured)
    for node in captured.nodes:
        found = []
        for last in (False, True):
            entering: dict[fx.Node, Node] = {}
            look = partial(lookup, entering=entering, last=last)
            arguments = fx.node.map_aggregate(node.args, look)
            options = fx.node.map_aggregate(node.kwargs, look)
            result = translate(node, list(arguments), dict(options), captured.batch)
            if result is not None:
                found.append((result, entering))
        if found:
            made[node], entering = min(found, key=lambda item: channels_last(item[0].axes) != wanted)
            entries.update(entering)
    return made, entries


def _mostly_last(captured: Captured) -> bool:
    """Return whether the network has linear layers on more than vectors, which want the channels last."""
    layers = [node for node in captured.nodes if node.target is torch.ops.aten.linear.default]
    return any(layer.meta["val"].ndim > 2 for layer in layers)
