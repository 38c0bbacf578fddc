"""Which operations the runtime takes and which stay in PyTorch: the graph in parts that run one after the other."""

import operator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx

from rvsm.lowering.capture import Captured, module_name
from rvsm.lowering.draft import Draft, Node
from rvsm.lowering.translate import translate, value_shape
from rvsm.runtime.forms import channels_last

Outside = tuple[str, str]  # the name of an operation in PyTorch, and the module that it stands in


@dataclass(eq=False)
class NativePart:
    """Nodes for the runtime, with the values of the graph that go in and come out."""

    draft: Draft
    inputs: list[fx.Node]
    outputs: list[fx.Node]


@dataclass(eq=False)
class TorchPart:
    """Operations that stay in PyTorch."""

    nodes: list[fx.Node] = field(default_factory=list)

    @property
    def names(self) -> list[Outside]:
        """What the operations are called, with the module they belong to; sizes and picks are not worth a word."""
        worth = [n for n in self.nodes if n.target is not operator.getitem and "sym_size" not in str(n.target)]
        return [(str(node.target).removesuffix(".default"), module_name(node)) for node in worth]


Part = NativePart | TorchPart


def divide(captured: Captured) -> list[Part]:
    """Return the parts in the order in which they run."""
    made, entries = _translated(captured)
    origin = {node: source for source, node in [*made.items(), *entries.items()]}
    while True:
        needed = _needed(captured, made, origin)
        depth = _depths(captured, made, origin, needed)
        idle = _idle(made, depth, needed)
        if not idle:
            break
        for node in idle:
            del made[node]
    torch_parts: dict[int, TorchPart] = {}
    members: dict[int, list[fx.Node]] = {}
    for node in captured.nodes:
        if node in needed and node in made:
            members.setdefault(depth[node], []).append(node)
        elif node in needed:
            torch_parts.setdefault(depth[node], TorchPart()).nodes.append(node)
    wanted = {node for node in needed if node in made and _leaves(node, captured, made, depth, needed)}
    parts: dict[int, Part] = {**torch_parts}
    for level, nodes in members.items():
        parts[level] = _native(nodes, made, origin, wanted)
    return [parts[level] for level in sorted(parts)]


def _depths(
    captured: Captured, made: dict[fx.Node, Node], origin: dict[Node, fx.Node], needed: set[fx.Node]
) -> dict[fx.Node, int]:
    """Return the number of each node's part: odd if it is native, and larger than those that it takes values from."""
    depth: dict[fx.Node, int] = dict.fromkeys([*captured.inputs, *captured.tensors], 0)
    for node in captured.nodes:
        if node in needed:
            native = node in made
            sources = [origin[s] for s in made[node].sources] if native else node.all_input_nodes
            depth[node] = max([1 if native else 0, *(depth[s] + (native != (s in made)) for s in sources)])
    return depth


def _idle(made: dict[fx.Node, Node], depth: dict[fx.Node, int], needed: set[fx.Node]) -> list[fx.Node]:
    """Return nodes of native parts without weights: beside other parts, no zeros pay for the way in and out."""
    inside = [node for node in needed if node in depth]
    working = {depth[node] for node in inside if node in made and made[node].weights is not None}
    alone = len({depth[node] for node in inside}) == 1
    return [] if alone else [node for node in inside if node in made and depth[node] not in working]


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
            made[node], entering = min(found, key=lambda item: channels_last(item[0].form) != wanted)
            entries.update(entering)
    return made, entries


def _mostly_last(captured: Captured) -> bool:
    """Say whether the network has linear layers on more than vectors, which want the channels last."""
    layers = [node for node in captured.nodes if node.target is torch.ops.aten.linear.default]
    return any(layer.meta["val"].ndim > 2 for layer in layers)


def _needed(captured: Captured, made: dict[fx.Node, Node], origin: dict[Node, fx.Node]) -> set[fx.Node]:
    needed: set[fx.Node] = set()
    waiting = list(captured.outputs)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [origin[s] for s in made[node].sources] if node in made else node.all_input_nodes
    return needed


def _leaves(
    node: fx.Node, captured: Captured, made: dict[fx.Node, Node], depth: dict[fx.Node, int], needed: set[fx.Node]
) -> bool:
    """Say whether a value is needed outside of the part that makes it."""
    if node in captured.outputs:
        return True
    for user in node.users:
        if user in needed and user not in made:
            return True
        if user in needed and depth[user] != depth[node] and made[node] in made[user].sources:
            return True
    return False


def _native(
    nodes: list[fx.Node], made: dict[fx.Node, Node], origin: dict[Node, fx.Node], wanted: set[fx.Node]
) -> NativePart:
    inside = {made[node] for node in nodes}
    entries: dict[fx.Node, Node] = {}
    for node in nodes:
        mine = made[node]
        sources = []
        for source in mine.sources:
            if source in inside:
                sources.append(source)
            else:
                outer = origin[source]
                sources.append(entries.setdefault(outer, Node(None, [], source.shape, source.form)))
        mine.sources = sources
    outputs = [node for node in nodes if node in wanted]
    results = [made[node] for node in outputs]
    draft = Draft(list(entries.values()), [made[node] for node in nodes], results, [result.form for result in results])
    return NativePart(draft, list(entries), outputs)
