"""What changes the shape only: views, which cost nothing, and concatenation."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch

from rvsm.lowering.alignment import common_slots, view_of
from rvsm.lowering.draft import node
from rvsm.lowering.place import Place
from rvsm.lowering.values import Value, as_value, constant, is_value, rearranged, reshaped, settled
from rvsm.lowering.views import BATCH, Axis, View
from rvsm.runtime.plan.operations import Concatenation
from rvsm.runtime.plan.tensors import Constant

END = (1 << 63) - 1  # torch's word for the end of a dimension


def of_view(x: Value, view: View | None) -> Value | None:
    """Return the same numbers in another view."""
    return None if view is None else replace(x, view=view)


def identity(at: Place, x: Any, *others: Any, **options: Any) -> Value | None:
    """Return the value as it is."""
    return x if is_value(x) else None


def first(at: Place, values: Any, index: int) -> Any:
    """Return one of several results."""
    if isinstance(values, tuple | list):
        return values[index] if index < len(values) else None
    return values if is_value(values) and index == 0 else None


def reshape(at: Place, x: Any, *others: Any, **options: Any) -> Value | None:
    """Return a value with the dimensions of the result."""
    return reshaped(x, at.sizes) if is_value(x) else None


def permute(at: Place, x: Any, dims: Sequence[int]) -> Value | None:
    """Return the value with its dimensions in another order."""
    return of_view(x, x.view.permuted([d % x.rank for d in dims])) if is_value(x) else None


def transpose(at: Place, x: Any, one: int = 0, two: int = 1) -> Value | None:
    """Return the value with two of its dimensions exchanged."""
    if not is_value(x):
        return None
    order = list(range(x.rank))
    if x.rank > 1:
        order[one % x.rank], order[two % x.rank] = order[two % x.rank], order[one % x.rank]
    return of_view(x, x.view.permuted(order))


def expand(at: Place, x: Any, *others: Any, **options: Any) -> Value | None:
    """Return a value that is repeated along dimensions of size 1."""
    return of_view(x, x.view.expanded(at.sizes)) if is_value(x) else None


def select(at: Place, x: Any, dim: int, index: int) -> Value | None:
    """Return one entry of a dimension."""
    return of_view(x, x.view.selected(dim % x.rank, index)) if is_value(x) and isinstance(index, int) else None


def cut(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value | None:
    """Return a slice of a dimension; of the images, only all of them."""
    if not is_value(x):
        return None
    dim %= x.rank
    if BATCH in x.view.dims[dim]:
        everything = start in (None, 0) and end in (None, END) and step == 1
        return x if everything or x.sizes == list(at.sizes) else None
    size = x.sizes[dim][1]
    if not all(given is None or isinstance(given, int) for given in (start, end)):
        return None
    first, last, step = slice(start, end, step).indices(size)
    return sliced(x, dim, first, len(range(first, last, step)), step)


def sliced(x: Value, dim: int, start: int, count: int, step: int = 1) -> Value | None:
    """Return some entries of a dimension."""
    if count < 1:
        return None
    return of_view(x, x.view.sliced(dim, start, count, step)) or of_view(
        settled(x), settled(x).view.sliced(dim, start, count, step)
    )


def scatter(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """Return a slice that replaces all of a value."""
    given = as_value(at.name, x)
    whole = given is not None and is_value(source) and source.sizes == given.sizes == list(at.sizes)
    return source if whole and step == 1 else None


def split(at: Place, x: Any, size: Any, dim: int = 0) -> Any:
    """Return parts of a dimension, of one size or of several."""
    if not is_value(x):
        return None
    dim %= x.rank
    batched, total = x.sizes[dim]
    if batched:
        return None
    sizes = [min(size, total - k) for k in range(0, total, size)] if isinstance(size, int) else list(size)
    parts = [sliced(x, dim, sum(sizes[:k]), count) for k, count in enumerate(sizes)]
    return None if None in parts else parts


def chunk(at: Place, x: Any, chunks: int, dim: int = 0) -> Any:
    """Return parts of nearly the same size."""
    return split(at, x, max(1, -(-x.sizes[dim % x.rank][1] // chunks)), dim) if is_value(x) else None


def unbind(at: Place, x: Any, dim: int = 0) -> Any:
    """Return all entries of a dimension."""
    if not is_value(x) or BATCH in x.view.dims[dim % x.rank]:
        return None
    parts = [select(at, x, dim, k) for k in range(x.sizes[dim % x.rank][1])]
    return None if None in parts else parts


def stack(at: Place, parts: Sequence[Any], dim: int = 0) -> Value | None:
    """Return values side by side in a new dimension."""
    given = [as_value(at.name, part) for part in parts]
    dim = at.dim(dim)
    thin = [v and Value(v.node, View((*v.view.dims[:dim], (), *v.view.dims[dim:]), v.view.offset)) for v in given]
    return cat(at, thin, dim)


def cat(at: Place, parts: Sequence[Any], dim: int = 0) -> Value | None:
    """Return values side by side in a dimension; the outer dimensions in memory stay outside."""
    given = [value for value in (as_value(at.name, part) for part in parts) if value is not None]
    if len(given) != len(parts) or not given:
        return None
    dim = at.dim(dim)
    if any(BATCH in value.view.dims[dim] for value in given):
        return None
    others = [[() if d == dim else axes for d, axes in enumerate(value.view.dims)] for value in given]
    slots, structure = common_slots(others)
    computed = [not isinstance(value.node.operation, Constant | None) for value in given]
    leader = max(range(len(given)), key=lambda k: (computed[k], prod(size for _, size in given[k].sizes)))
    lead = given[leader]
    inside = min((axis.stride for axis in lead.view.dims[dim]), default=0)
    if not inside:  # of a single entry: it comes first
        inside = prod(lead.node.shape)
    order = sorted(range(len(slots)), key=lambda k: (-slots[k].strides[leader], k))
    outer = [k for k in order if slots[k].strides[leader] > inside]
    inner = [k for k in order if k not in outer]
    groups, positions = (prod(slots[k].size for k in part) for part in (outer, inner))
    usual = lead.node.shape[1:] if groups == 1 and prod(lead.node.shape[1:]) == positions else (1, positions)
    nodes = []
    for k, value in enumerate(given):
        axes = [
            *(Axis(slots[s].size, slots[s].strides[k]) for s in outer),
            *value.view.dims[dim],
            *(Axis(slots[s].size, slots[s].strides[k]) for s in inner),
        ]
        alone = Value(value.node, View(tuple((axis,) for axis in axes), value.view.offset))
        nodes.append(rearranged(alone, alone.view.keys, (groups * value.sizes[dim][1], *usual)))
    made = node(Concatenation(name=at.name, parts=(), groups=groups), nodes)
    total = sum(value.sizes[dim][1] for value in given)
    sizes = [*(slot.size for slot in slots), total]
    structure[dim] = [len(slots)]
    view = view_of(structure, sizes, [*outer, len(slots), *inner])
    return Value(made, view, lead.dtype)


def pixel_shuffle(at: Place, x: Any, factor: int) -> Value | None:
    """Return groups of channels as pixels."""
    return _shuffled(at, x, [(False, factor), (False, factor)], before=True)


def pixel_unshuffle(at: Place, x: Any, factor: int) -> Value | None:
    """Return pixels as groups of channels."""
    return _shuffled(at, x, [(False, factor), (False, factor)], before=False)


def _shuffled(at: Place, x: Any, factors: list[tuple[bool, int]], *, before: bool) -> Value | None:
    if not is_value(x) or x.rank != 4:
        return None
    batch, (_, c), (_, h), (_, w) = x.sizes
    (_, s), (_, t) = factors
    if before:
        parts, order = [batch, (False, c // (s * t)), *factors, (False, h), (False, w)], [0, 1, 4, 2, 5, 3]
    else:
        parts, order = [batch, (False, c), (False, h // s), factors[0], (False, w // t), factors[1]], [0, 1, 3, 5, 2, 4]
    apart = reshaped(x, parts)
    return None if apart is None else reshaped(Value(apart.node, apart.view.permuted(order)), at.sizes)


def channel_shuffle(at: Place, x: Any, groups: int) -> Value | None:
    """Return channels with their groups interleaved."""
    if not is_value(x) or x.rank < 3:
        return None
    channels = x.sizes[1][1]
    apart = reshaped(x, [x.sizes[0], (False, groups), (False, channels // groups), *x.sizes[2:]])
    if apart is None:
        return None
    return reshaped(Value(apart.node, apart.view.permuted([0, 2, 1, *range(3, apart.rank)])), at.sizes)


def repeat(at: Place, x: Any, times: Sequence[Any]) -> Value | None:
    """Return a value that is repeated along its dimensions, and along new ones before them."""
    if not is_value(x) or not all(isinstance(count, int) for count in times):
        return None
    dims = ((),) * (len(times) - x.rank) + x.view.dims
    repeated = [dim if count == 1 else (Axis(count, 0), *dim) for count, dim in zip(times, dims, strict=True)]
    return of_view(x, View(tuple(repeated), x.view.offset))


def filled(at: Place, x: Any, *given: Any, value: float | None = None, **options: Any) -> Value:
    """Return a number everywhere: ``value``, or the last one that is given."""
    number = constant(at.name, torch.full((), float(given[-1] if value is None else value)))
    dims = [(*([BATCH] if batched else []), *([Axis(size, 0)] if size > 1 else [])) for batched, size in at.sizes]
    return replace(number, view=View(tuple(dims)))
