"""Graphs without operations in place.

torch.export leaves such operations in a graph. Its decompositions remove them, but trace the network again, which takes
two thirds of the time of a capture. Most networks need that only for `ReLU(inplace=True)` and the like, whose argument
nothing else reads; these operations can be replaced one by one.
"""

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

aten = torch.ops.aten
_NEW = {
    *(aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding),
    *(aten.conv3d.default, aten.conv3d.padding, aten.linear.default),
    *(aten.batch_norm.default, aten.add.Tensor, aten.mul.Tensor),
}
"""Operations whose result shares no memory with their arguments, unlike that of a view, or of dropout in eval mode."""


def make_functional(graph: fx.Graph, known: Container[Any], inputs: Container[Any]) -> bool:
    """Replace operations in place; return False if this cannot be done, or if an operation is not ``known``.

    Operations that do not depend on the ``inputs``, but on their sizes at most, need not be known.
    """
    calls = [node for node in graph.nodes if node.op == "call_function"]
    dependent = _dependent(graph, inputs)
    new: set[fx.Node] = set()
    for node in calls:
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            if not _replace(node, new):
                return False
            new.add(node)
        elif node.target in _NEW:
            new.add(node)
    if not all((node.target in known and not _updates_statistics(node)) or node not in dependent for node in calls):
        return False
    graph.eliminate_dead_code()  # such as the indices of a pooling, which nothing reads
    return True


def _dependent(graph: fx.Graph, inputs: Container[Any]) -> set[fx.Node]:
    """Return the nodes whose values depend on the numbers in the inputs."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        given = node.op == "placeholder" and node.name in inputs
        computed = isinstance(node.meta.get("val"), Tensor | tuple | list) or node.op != "call_function"
        if given or (computed and any(source in found for source in node.all_input_nodes)):
            found.add(node)
    return found


def _replace(node: fx.Node, new: Container[fx.Node]) -> bool:
    """Give a node the operation that returns its result in new memory, if nothing else uses the memory it writes to."""
    changed = node.args[0]
    assert isinstance(node.target, OpOverload)
    packet, overload = node.target.overloadpacket.__name__, node.target._overloadname
    functional = getattr(getattr(aten, packet.removesuffix("_"), None), overload, None)
    if functional is None or not packet.endswith("_"):
        return False
    if not isinstance(changed, fx.Node) or changed not in new or len(changed.users) > 1:
        return False
    # The result in place has the type of what is changed, where a new one might have a wider type.
    values = [source.meta.get("val") for source in (node, *node.all_input_nodes)]
    if len({value.dtype if isinstance(value, Tensor) else None for value in values}) > 1:
        return False
    node.target = functional
    return True


def _updates_statistics(node: fx.Node) -> bool:
    """Return whether a batch norm is in train mode: it then changes its statistics, which its schema does not say."""
    return node.target is aten.batch_norm.default and node.args[5] is not False
