"""What does not depend on the inputs, but may depend on the number of images: masks, positions, repeated tokens.

Such values are computed for two and for three images. If they are the same for each image, one of them is enough, and
the runtime repeats it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from rvsm.lowering.capture import Captured
from rvsm.lowering.translations.shapes import ImageNumbers

COUNTS = (2, 3)


def constants(captured: Captured) -> dict[fx.Node, Any]:
    """Return known tensors for nodes of the graph, with a size of 1 for the images, or ``ImageNumbers``."""
    known: dict[fx.Node, Any] = dict(captured.tensors)
    if isinstance(captured.batch, int):
        return known
    computed = [_computed(captured, captured.batch, count) for count in COUNTS]
    for node in captured.nodes:
        found = [values.get(node) for values in computed]
        if all(isinstance(value, Tensor) for value in found):
            once = _once(node, found)
            if once is not None:
                known[node] = once
    return known


def _computed(captured: Captured, batch: torch.SymInt, count: int) -> dict[fx.Node, Any]:
    """Return what does not depend on the inputs, for this many images."""
    values: dict[fx.Node, Any] = dict(captured.tensors)
    for node in captured.nodes:
        meta = node.meta.get("val")
        if isinstance(meta, torch.SymInt):
            expression = meta.node.expr.subs(batch.node.expr, count)
            if expression.is_Integer:
                values[node] = int(expression)
        elif _is_pure(node) and all(source in values for source in node.all_input_nodes):
            arguments, options = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            function: Callable[..., Any] = node.target  # type: ignore[assignment]
            values[node] = function(*arguments, **options)
    return values


def _is_pure(node: fx.Node) -> bool:
    random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return isinstance(node.target, OpOverload) and not random and isinstance(node.meta.get("val"), Tensor)


def _once(node: fx.Node, found: Sequence[Any]) -> Any:
    """Return a tensor for one image, if it is the same for all; None if it is not."""
    dims = [d for d, size in enumerate(node.meta["val"].shape) if not isinstance(size, int)]
    if len(dims) > 1 or any(list(value.shape) != _sizes(node, count) for value, count in _with_counts(found, dims)):
        return None
    first = found[0].narrow(dims[0], 0, 1) if dims else found[0]
    if all(torch.equal(first.expand_as(value), value) for value in found):
        return first
    if dims and all(torch.equal(_numbers(value, dims[0]), value) for value in found):
        return ImageNumbers(found[0].ndim, dims[0])
    return None


def _with_counts(found: Sequence[Any], dims: Sequence[int]) -> list[tuple[Any, int]]:
    return list(zip(found, COUNTS, strict=True)) if dims else []


def _sizes(node: fx.Node, count: int) -> list[int]:
    """Return the sizes of a value whose symbolic size is the number of images."""
    return [size if isinstance(size, int) else count for size in node.meta["val"].shape]


def _numbers(like: Tensor, dim: int) -> Tensor:
    """Return 0, 1, … along a dimension."""
    sizes = [1] * like.ndim
    sizes[dim] = -1
    return torch.arange(like.shape[dim], dtype=like.dtype).reshape(sizes).expand_as(like)
