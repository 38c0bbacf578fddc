"""Which operations the runtime takes and which stay in PyTorch: the graph in parts that run one after the other."""

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import fx

from rvsm.lowering.capture import Captured, Symbols, module_name
from rvsm.lowering.constants import constants
from rvsm.lowering.draft import Draft, Key, Leaving, Node
from rvsm.lowering.simplify import is_affine
from rvsm.lowering.translate import translate, value_sizes
from rvsm.lowering.values import Value, rearranged
from rvsm.lowering.views import BATCH, View
from rvsm.runtime.plan.axes import MAP
from rvsm.runtime.plan.operation import Shape
from rvsm.runtime.plan.plan import check_shape
from rvsm.runtime.plan.recurrence import Recurrence
from rvsm.runtime.plan.tensors import Contraction

Outside = tuple[str, str]  # the name of an operation in PyTorch, and the module that it stands in


@dataclass(eq=False)
class TorchPart:
    """Operations that stay in PyTorch."""

    nodes: list[fx.Node] = field(default_factory=list)

    @property
    def names(self) -> list[Outside]:
        """The names of the operations with their modules, except size queries and selections."""
        worth = [n for n in self.nodes if n.target is not operator.getitem and not _is_size(n)]
        return [(str(node.target).removesuffix(".default"), module_name(node)) for node in worth]


Part = Draft | TorchPart


def divide(captured: Captured) -> list[Part]:
    """Return the parts in the order in which they run."""
    return _Division(captured).parts()


class _Division:
    """What is known while a graph is divided: which of its nodes are ``native``, as which values.

    ``owner`` leads from a node of a draft to that of the graph that made it, and ``made`` back. ``depth`` is the number
    of a node's part. Nodes that cannot stay native are ``banned``, and the graph is translated again without them.
    """

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.known = constants(captured)
        self.banned: set[fx.Node] = set()
        while True:
            self._translate()
            self._measure()
            if not (found := {*self._idle(), *self._stuck()}):
                break
            self.banned |= found

    def parts(self) -> list[Part]:
        """Return the parts in the order in which they run."""
        members: dict[int, list[fx.Node]] = {}
        for node in self.captured.nodes:
            if node in self.needed:
                members.setdefault(self.depth[node], []).append(node)
        levels = [members[level] for level in sorted(members)]
        self.readers: dict[Node, set[int]] = {}  # the parts that take a node
        for node in self.needed & set(self.native):
            for source in (source for made in self.made[node] for source in made.sources):
                self.readers.setdefault(source, set()).add(self.depth[node])
        return [self._draft(nodes) if nodes[0] in self.native else TorchPart(nodes) for nodes in levels]

    def _translate(self) -> None:
        """Find the values of all nodes that the runtime can take."""
        captured = self.captured
        self.native: dict[fx.Node, Any] = {}
        self.entries: dict[fx.Node, Value] = {}
        self.owner: dict[Node, fx.Node] = {}
        self.made: dict[fx.Node, list[Node]] = {}

        def lookup(argument: Any) -> Any:
            if not isinstance(argument, fx.Node):
                return argument
            if argument in self.known:
                return self.known[argument]
            return self.native.get(argument) or self._entry(argument) or argument

        for node in captured.nodes:
            if node in self.banned or node in self.known:
                continue
            arguments = fx.node.map_aggregate(node.args, lookup)
            options = fx.node.map_aggregate(node.kwargs, lookup)
            result = translate(node, list(arguments), dict(options), captured.symbols)
            if result is not None:
                self.native[node] = result
                self.made[node] = [made for value in _each(result) for made in self._new(value.node, node)]

    def _entry(self, node: fx.Node) -> Value | None:
        """Return a value from outside, in the order of its dimensions."""
        if node not in self.entries:
            made = entry(node, self.captured.symbols)
            if made is None:
                return None
            self.owner[made] = node
            sizes = [(True, 1), *((False, size) for size in made.sizes or ())]
            self.entries[node] = Value(made, View.dense(sizes), node.meta["val"].dtype)
        return self.entries[node]

    def _new(self, node: Node, maker: fx.Node) -> Iterator[Node]:
        """Return nodes that nobody has made before, sources first."""
        stack = [(node, iter(node.sources))] if node not in self.owner else []
        while stack:
            last, sources = stack[-1]
            following = next((source for source in sources if source not in self.owner), None)
            if following is not None:
                stack.append((following, iter(following.sources)))
                continue
            stack.pop()
            if last not in self.owner:
                self.owner[last] = maker
                yield last

    def _sources(self, node: fx.Node) -> Sequence[fx.Node]:
        """Return what a node takes: fewer values if it is native, since those of constants are in its weights."""
        if node not in self.native:
            return node.all_input_nodes
        own = self.made[node]
        inside = set(own)
        outer = [source for made in own for source in made.sources if source not in inside]
        views = [value.node for value in _each(self.native[node]) if value.node not in inside]
        return list(dict.fromkeys(self.owner[source] for source in (*outer, *views)))

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
        inside = [node for node in self.captured.nodes if node in self.needed]
        working = {self.depth[n] for n in inside if n in self.native and any(map(_is_work, self.made[n]))}
        alone = len({self.depth[node] for node in inside}) == 1
        return [] if alone else [n for n in inside if n in self.native and self.depth[n] not in working]

    def _stuck(self) -> list[fx.Node]:
        """Return native nodes that PyTorch needs, but that cannot leave: several, folded images, too many axes."""
        return [
            node for node in self.needed if node in self.native and self._leaves(node) and not self._can_leave(node)
        ]

    def _can_leave(self, node: fx.Node) -> bool:
        value = self.native[node]
        return (
            isinstance(value, Value)
            and value.dtype == torch.float32
            and value.movable
            and [dim for dim in value.view.dims if BATCH in dim] == [(BATCH,)]
        )

    def _leaves(self, node: fx.Node) -> bool:
        """Return whether PyTorch needs a value: as a result, or for an operation."""
        if node in self.captured.outputs:
            return True
        return any(user in self.needed and user not in self.native for user in node.users)

    def _draft(self, nodes: list[fx.Node]) -> Draft:
        """Return a native part; values that others make are its inputs, and what others need leaves it."""
        own = [made for node in nodes for made in self.made[node]]
        inside, entries = set(own), dict[Node, Node]()
        takes: list[Key] = []

        def inner(source: Node) -> Node:
            if source in inside:
                return source
            if source not in entries:
                given = source.operation is None  # an input or a result of PyTorch; otherwise another part's
                shape, axes, sizes = source.shape, source.axes, source.sizes if given else source.shape
                entries[source] = Node(None, [], shape, axes, sizes=sizes, integer=source.integer)
                takes.append(self.owner[source] if given else source)
            return entries[source]

        gives: list[Key] = []
        outputs: list[Node] = []
        leaving: list[Leaving] = []
        made_late: list[Node] = []
        for node in nodes:
            if self._leaves(node):
                value = self.native[node]
                sizes = tuple(size for batched, size in value.sizes if not batched)
                result = rearranged(value, value.view.keys, _shape(sizes))
                if result not in inside and result.operation is not None:
                    result = replace(result, others={})  # another part may have made the same for itself
                    made_late.append(result)
                gives.append(node)
                outputs.append(result)
                leaving.append(Leaving(_axes(sizes), sizes, value.view.dims.index((BATCH,))))
        for made in made_late:
            inside.add(made)
        for made in own:
            if self.readers.get(made, set()) - {self.depth[nodes[0]]}:
                gives.append(made)
                outputs.append(made)
                leaving.append(Leaving(MAP, made.shape))
        replaced = {made: [inner(source) for source in made.sources] for made in [*own, *made_late]}
        outputs = [inner(output) for output in outputs]
        for made, sources in replaced.items():
            made.sources = sources
        return Draft(list(entries.values()), [*own, *made_late], outputs, takes, gives, leaving)


def entry(node: fx.Node, symbols: Symbols) -> Node | None:
    """Return the input of a draft that stands for a value from outside; None if the runtime has no such values."""
    sizes = value_sizes(node, symbols)
    if sizes is None:
        return None
    shape = _shape(sizes)
    try:
        check_shape(shape, "a value")
    except ValueError:
        return None
    return Node(None, [], shape, _axes(sizes), sizes=sizes, integer=node.meta["val"].dtype != torch.float32)


def _each(result: Any) -> list[Value]:
    return list(result) if isinstance(result, list | tuple) else [result]


def _is_size(node: fx.Node) -> bool:
    """Return whether a node computes sizes only."""
    return not isinstance(node.meta.get("val"), torch.Tensor | tuple | list) and node.op == "call_function"


def _is_work(node: Node) -> bool:
    """Return whether a node does what native parts are for: multiplications with weights, or of matrices."""
    if isinstance(node.operation, Contraction | Recurrence):
        return True
    return node.weights is not None and node.convolution is not None and not is_affine(node)


def _axes(sizes: Collection[int]) -> str:
    """Return the axes of an array whose numbers are those of a map in the same order."""
    return {1: "c", 2: "cw"}.get(len(sizes), MAP)


def _shape(sizes: tuple[int, ...]) -> Shape:
    """Return a map with the numbers of an array of these sizes, in the same order."""
    if len(sizes) == 3:
        return sizes[0], sizes[1], sizes[2]
    first, rest = (sizes[0], sizes[1:]) if sizes else (1, ())
    return first, 1, prod(rest)
