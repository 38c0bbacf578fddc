"""Which operations the runtime takes and which stay in PyTorch: the graph in parts that run one after the other."""

from dataclasses import dataclass, field
from typing import Any

from torch import fx

from rvsm.lowering.capture import Captured
from rvsm.lowering.draft import Draft, Node
from rvsm.lowering.translate import translate, value_shape


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


Part = NativePart | TorchPart


def divide(captured: Captured) -> list[Part]:
    """Return the parts in the order in which they run."""
    made, entries = _translated(captured)
    origin = {node: source for source, node in [*made.items(), *entries.items()]}
    needed = _needed(captured, made, origin)
    depth: dict[fx.Node, int] = dict.fromkeys([*captured.inputs, *captured.tensors], 0)
    torch_parts: dict[int, TorchPart] = {}
    members: dict[int, list[fx.Node]] = {}
    for (
        node
    ) in captured.nodes:  # native parts have odd depths, and a value enters at a larger depth than it was made at
        if node not in needed:
            continue
        native = node in made
        sources = [origin[s] for s in made[node].sources] if native else node.all_input_nodes
        depth[node] = max(
            [1 if native else 0, *(depth[s] + (native != (s in made)) for s in sources)],
        )
        if native:
            members.setdefault(depth[node], []).append(node)
        else:
            torch_parts.setdefault(depth[node], TorchPart()).nodes.append(node)
    wanted = {node for node in needed if node in made and _leaves(node, captured, made, depth, needed)}
    parts: dict[int, Part] = {**torch_parts}
    for level, nodes in members.items():
        parts[level] = _native(nodes, made, origin, wanted)
    return [parts[level] for level in sorted(parts)]


def _translated(captured: Captured) -> tuple[dict[fx.Node, Node], dict[fx.Node, Node]]:
    """Return the nodes that the runtime can take, and those that stand for values from outside."""
    made: dict[fx.Node, Node] = {}
    entries: dict[fx.Node, Node] = {}

    def lookup(argument: Any) -> Any:
        if not isinstance(argument, fx.Node):
            return argument
        if argument in captured.tensors:
            return captured.tensors[argument]
        if argument in made:
            return made[argument]
        shaped = value_shape(argument, captured.batch)
        if shaped is None or isinstance(argument.meta.get("val"), tuple | list):
            return argument
        return entries.setdefault(argument, Node(None, [], shaped[0], shaped[1]))

    for node in captured.nodes:
        arguments = fx.node.map_aggregate(node.args, lookup)
        options = fx.node.map_aggregate(node.kwargs, lookup)
        result = translate(node, list(arguments), dict(options), captured.batch)
        if result is not None:
            made[node] = result
    return made, entries


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
                sources.append(entries.setdefault(outer, Node(None, [], source.shape, source.flat)))
        mine.sources = sources
    outputs = [node for node in nodes if node in wanted]
    results = [made[node] for node in outputs]
    draft = Draft(list(entries.values()), [made[node] for node in nodes], results, [result.flat for result in results])
    return NativePart(draft, list(entries), outputs)
