"""GELU written as a formula, x/2 · (1 + erf(x/√2)) or its approximation by tanh, as one activation.

Transformers' GPT-2 and many networks by hand have it so; each operation would be a pass over all numbers.
"""

from math import isclose, pi, sqrt

from rvsm.lowering.draft import Draft, Node
from rvsm.runtime.plan.operation import Activation
from rvsm.runtime.plan.operations import Pointwise

CUBE = 0.044715


def recognize(draft: Draft) -> None:
    """Replace products that are a GELU by its activation."""
    for node in draft.nodes:
        if not _is(node, "mul"):
            continue
        for first, second in (node.sources, reversed(node.sources)):
            found = _gelu(first, second)
            if found is not None:
                x, name = found
                assert node.operation is not None
                activation = Activation(name)
                node.operation = Pointwise(name=node.operation.name, operation="none", a=0, activation=activation)
                node.sources = [x]
                break
    draft.drop_unused()


def _gelu(first: Node, second: Node) -> tuple[Node, str] | None:
    """Return x and the name of the function, if the product of two nodes is a GELU of x."""
    half, zero, x = _line(first)
    scale, shift, bent = _line(second)
    if zero != 0 or not isclose(scale, shift, rel_tol=1e-5) or not isclose(half * scale, 0.5, rel_tol=1e-5):
        return None
    if (inner := _source(bent, "erf")) is not None:
        slope, zero, source = _line(inner)
        return (x, "gelu") if source is x and zero == 0 and isclose(slope, sqrt(0.5), rel_tol=1e-5) else None
    if (inner := _source(bent, "tanh")) is not None:
        slope, zero, total = _line(inner)
        right = zero == 0 and isclose(slope, sqrt(2 / pi), rel_tol=1e-5) and _is(total, "add")
        return (x, "gelu_tanh") if right and any(_is_cubic(total, x, k) for k in (0, 1)) else None
    return None


def _is_cubic(total: Node, x: Node, k: int) -> bool:
    """Return whether a sum is x + 0.044715 · x³, with x as its k-th part."""
    factor, zero, cube = _line(total.sources[1 - k])
    small = zero == 0 and isclose(factor, CUBE, rel_tol=1e-5)
    return total.sources[k] is x and small and _source(cube, "cube") is x


def _is(node: Node, operation: str) -> bool:
    o = node.operation
    return isinstance(o, Pointwise) and o.operation == operation and o.activation.name == "none"


def _source(node: Node, activation: str) -> Node | None:
    """Return x, if a node is this activation of x."""
    o = node.operation
    same = isinstance(o, Pointwise) and o.operation == "none" and o.activation.name == activation
    return node.sources[0] if same else None


def _line(node: Node) -> tuple[float, float, Node]:
    """Return scale, shift and x of a node that is scale · x + shift; any node is 1 · itself + 0."""
    x = _source(node, "line")
    if x is None or not isinstance(node.operation, Pointwise):
        return 1.0, 0.0, node
    return node.operation.activation.a, node.operation.activation.b, x
