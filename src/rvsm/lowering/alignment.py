"""Several tensors beside each other: broadcast to common sizes, cut into common axes, and brought into one order.

The order is that of the largest tensor that is computed, so that usually nothing moves. Tensors that are smaller stay
so where the runtime can broadcast them, along channels, rows or columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from rvsm.lowering.draft import Node
from rvsm.lowering.values import Value, rearranged, settled
from rvsm.lowering.views import BATCH, Axis, View, merged, strides_of
from rvsm.runtime.plan.operation import Shape
from rvsm.runtime.plan.tensors import Constant


@dataclass(frozen=True)
class Slot:
    """An axis that several tensors have in common: its dimension, its size, and its stride in each, 0 for none."""

    dim: int
    size: int
    strides: tuple[int, ...]


def common_slots(dims: Sequence[Sequence[tuple[Axis, ...]]]) -> tuple[list[Slot], list[list[int | None]]]:
    """Return the axes of dimensions, given for each tensor, cut until they are the same for all that have them.

    Also returns, for each dimension, the numbers of its slots, with None for the images. Raises ValueError if axes do
    not fit together.
    """
    slots: list[Slot] = []
    structure: list[list[int | None]] = []
    for d, parts in enumerate(zip(*dims, strict=True)):
        given = [merged(axes) for axes in parts]
        waiting = [list(reversed(axes)) for axes in given]
        members: list[int | None] = []
        while any(waiting):
            heads = [axes[-1] if axes else None for axes in waiting]
            present = [head for head, axes in zip(heads, given, strict=True) if axes]
            if None in present:
                raise ValueError("dimensions of different sizes")
            if BATCH in present:
                if any(head != BATCH for head in present):
                    raise ValueError("images in different dimensions")
                for axes in waiting:
                    if axes:
                        axes.pop()
                members.append(None)
                continue
            size = min(head.size for head in present if head is not None)
            strides = []
            for axes in waiting:
                if not axes:
                    strides.append(0)
                    continue
                axis = axes.pop()
                if axis.size % size:
                    raise ValueError("axes that do not divide each other")
                inner = axis.size // size
                strides.append(axis.stride * inner)
                if inner > 1:
                    axes.append(Axis(inner, axis.stride))
            members.append(len(slots))
            slots.append(Slot(d, size, tuple(strides)))
        structure.append(members)
    return slots, structure


def joined(slots: Sequence[Slot]) -> list[Slot]:
    """Return slots with neighbours joined that count on without a gap in all tensors."""
    result: list[Slot] = []
    for slot in slots:
        before = result[-1] if result else None
        if before is not None and all(
            outer == slot.size * inner for outer, inner in zip(before.strides, slot.strides, strict=True)
        ):
            result[-1] = Slot(slot.dim, before.size * slot.size, slot.strides)
        elif slot.size > 1:
            result.append(slot)
    return result


def view_of(structure: Sequence[Sequence[int | None]], sizes: Sequence[int], order: Sequence[int]) -> View:
    """Return the view of a tensor whose numbers lie in this order of its slots; other slots repeat them."""
    strides = dict(zip(order, strides_of([sizes[k] for k in order]), strict=True))
    return View(
        tuple(
            tuple(BATCH if k is None else Axis(sizes[k], strides.get(k, 0)) for k in members) for members in structure
        )
    )


@dataclass(frozen=True, eq=False)
class Aligned:
    """Nodes that the runtime can combine number by number, and the view of the result."""

    nodes: list[Node]
    view: View


def aligned(values: Sequence[Value]) -> Aligned:
    """Return tensors broadcast to common sizes, in a common order."""
    first = values[0]
    if first.most and all((v.view, v.node.shape) == (first.view, first.node.shape) for v in values):
        return Aligned([value.node for value in values], first.view)
    rank = max(value.rank for value in values)
    try:
        slots, structure = common_slots([((),) * (rank - value.rank) + value.view.dims for value in values])
    except ValueError:  # axes that do not divide each other: with the numbers in order, each dimension is one axis
        values = [settled(value) for value in values]
        slots, structure = common_slots([((),) * (rank - value.rank) + value.view.dims for value in values])
    moving = [k for k, slot in enumerate(slots) if any(slot.strides)]  # what all repeat, the result repeats
    leader = _leader(values, [slots[k] for k in moving])
    order = sorted(moving, key=lambda k: (-slots[k].strides[leader], k))
    view = view_of(structure, [slot.size for slot in slots], order)
    inner = [slots[k] for k in order]
    usual = values[leader].node.shape
    shape = _shape(usual, inner)
    if shape is not None:
        return Aligned([_placed(value, k, inner, shape) for k, value in enumerate(values)], view)
    total = prod(slot.size for slot in inner)
    shape = usual if prod(usual) == total else (inner[0].size, 1, total // inner[0].size)
    return Aligned([_repeated(value, k, inner, shape) for k, value in enumerate(values)], view)


def _leader(values: Sequence[Value], slots: Sequence[Slot]) -> int:
    """Return which tensor decides about the order: a whole one, rather computed than given or known."""

    def rank(k: int) -> tuple[bool, bool, bool, int]:
        value = values[k]
        full = all(slot.strides[k] for slot in slots)
        computed = value.node.operation is not None and not isinstance(value.node.operation, Constant)
        return full and value.whole, full, computed, prod(slot.size for slot in slots if slot.strides[k])

    return max(range(len(values)), key=rank)


def _shape(usual: Shape, slots: Sequence[Slot]) -> Shape | None:
    """Return channels, rows and columns along each of which every tensor counts on, or is broadcast, if possible."""
    if _groups(slots, usual) is not None:
        return usual
    parts = joined(slots)
    sizes = [part.size for part in parts]
    if len(sizes) > 3:
        return None
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else ((*sizes, 1)[0], 1, prod(sizes[1:]))


def _groups(slots: Sequence[Slot], shape: Shape) -> list[list[Slot]] | None:
    """Return the slots that make up each size of a map; None if they do not, or do not count on."""
    waiting, groups = list(reversed(slots)), []
    for size in shape:
        group: list[Slot] = []
        while prod(slot.size for slot in group) < size and waiting:
            group.append(waiting.pop())
        if prod(slot.size for slot in group) != size or len(joined(group)) > 1:
            return None
        groups.append(joined(group))
    return None if waiting else groups


def _placed(value: Value, k: int, slots: Sequence[Slot], shape: Shape) -> Node:
    """Return the k-th tensor as a map of the common shape, or of single channels, rows, columns."""
    groups = _groups(slots, shape)
    assert groups is not None
    axes = [Axis(g[0].size, g[0].strides[k]) if g and g[0].strides[k] else Axis(1, 0) for g in groups]
    own = (axes[0].size, axes[1].size, axes[2].size)
    present = tuple(axis for axis in axes if axis.size > 1)
    alone = Value(value.node, View(tuple((axis,) for axis in present), value.view.offset))
    return rearranged(alone, alone.view.keys, own)


def _repeated(value: Value, k: int, slots: Sequence[Slot], shape: Shape) -> Node:
    """Return the k-th tensor in the common order, with its numbers repeated: there are too many axes to broadcast."""
    alone = Value(value.node, View(tuple((Axis(slot.size, slot.strides[k]),) for slot in slots), value.view.offset))
    return rearranged(alone, alone.view.keys, shape)
