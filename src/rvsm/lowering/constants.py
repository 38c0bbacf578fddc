"""What does not depend on the inputs, but may depend on the number of images or on their length: masks, positions.

Such values are computed for two and for three images. If they are the same for each image, one of them is enough, and
the runtime repeats it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from rvsm.lowering.capture import Captured, Symbols
from rvsm.lowering.translate import sizes_of
from rvsm.lowering.translations.entries import ImageNumbers
from rvsm.lowering.values import Value, constant, is_tensor
from rvsm.lowering.views import BATCH, Size, View

COUNTS = (2, 3)


def constants(captured: Captured) -> dict[fx.Node, Any]:
    """Return what is known of nodes of the graph: tensors with a size of 1 for the images, ``ImageNumbers``, values.

    Numbers that follow from the length of sequences are known, too.
    """
    known: dict[fx.Node, Any] = dict(captured.tensors)
    symbols = captured.symbols
    for node in captured.nodes if symbols.length is not None else ():
        number = _number(node.meta.get("val"), symbols)
        if number is not None:
            known[node] = number
    if isinstance(symbols.batch, int):
        return known
    computed = [_computed(captured, symbols.batch, count) for count in COUNTS]
    for node in captured.nodes:
        found = [value for value in (values.get(node) for values in computed) if isinstance(value, Tensor)]
        sizes = sizes_of(node.meta["val"], symbols) if len(found) == len(COUNTS) else None
        if sizes is not None:
            once = _once(node, sizes, found)
            if once is not None:
                known[node] = once
    return known


def _computed(captured: Captured, batch: torch.SymInt, count: int) -> dict[fx.Node, Any]:
    """Return what does not depend on the inputs, for this many images."""
    values: dict[fx.Node, Any] = dict(captured.tensors)
    for node in captured.nodes:
        meta = node.meta.get("val")
        if isinstance(meta, torch.SymInt):
            expression = captured.symbols.expression(meta).subs(batch.node.expr, count)
            if expression.is_Integer:
                values[node] = int(expression)
        elif _is_pure(node) and all(source in values for source in node.all_input_nodes):
            arguments, options = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            function: Callable[..., Any] = node.target  # type: ignore[assignment]
            with suppress(Exception):  # what cannot be computed now may be computable later
                values[node] = function(*arguments, **options)
    return values


def _number(meta: Any, symbols: Symbols) -> int | float | None:
    """Return a symbolic number, if it depends on nothing but the length."""
    if not isinstance(meta, torch.SymInt | torch.SymFloat):
        return None
    expression = symbols.expression(meta)
    if not expression.is_number:
        return None
    return int(expression) if expression.is_Integer else float(expression)


def _is_pure(node: fx.Node) -> bool:
    random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return isinstance(node.target, OpOverload) and not random and isinstance(node.meta.get("val"), Tensor)


def _once(node: fx.Node, sizes: Sequence[Size], found: Sequence[Tensor]) -> Any:
    """Return a tensor for one image, if it is the same for all; None if it is not."""
    dims = [d for d, (batched, _) in enumerate(sizes) if batched]
    if not dims:
        return found[0] if torch.equal(*found) else None
    dim, each = dims[0], sizes[dims[0]][1]
    first = found[0].narrow(dim, 0, each)
    if all(torch.equal(torch.cat([first] * count, dim), value) for value, count in zip(found, COUNTS, strict=True)):
        return first if each == 1 else _folded(node, first, dim)
    if each == 1 and all(torch.equal(_numbers(value, dim), value) for value in found):
        return ImageNumbers(first.ndim, dim)
    return None


def _folded(node: fx.Node, first: Tensor, dim: int) -> Value | None:
    """Return a tensor whose dimension counts images and something else, the same for all images, as a value."""
    if not is_tensor(first):
        return None
    known = constant(node.name, first)
    dims = [(BATCH, *axes) if d == dim else axes for d, axes in enumerate(known.view.dims)]
    return replace(known, view=View(tuple(dims)))


def _numbers(like: Tensor, dim: int) -> Tensor:
    """Return 0, 1, … along a dimension."""
    sizes = [1] * like.ndim
    sizes[dim] = -1
    return torch.arange(like.shape[dim], dtype=like.dtype).reshape(sizes).expand_as(like)
