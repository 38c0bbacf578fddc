"""Views: how the dimensions of a tensor lie in the memory of a map.

A dimension counts one or several axes, outermost first. An axis has a size and a stride, which is the distance of
neighbours in the numbers of one image; 0 repeats a number. ``BATCH`` is the axis of the images, wherever it lies: it
may come first, second, or be folded with others into one dimension. Reshaping, exchanging, slicing and repeating
dimensions make another view, and cost nothing.

>>> View.dense([(True, 1), (False, 2), (False, 6)]).reshaped([(True, 2), (False, 3), (False, 2)])
View(dims=((BATCH, 2:6), (3:2,), (2:1,)), offset=0)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

Size = tuple[bool, int]  # whether a dimension counts the images, and its size for each of them
Key = tuple[int, int]  # an axis of a view: its dimension, and its place there


class Axis(NamedTuple):
    """Some numbers at equal distances."""

    size: int
    stride: int

    def __repr__(self) -> str:
        return "BATCH" if self == BATCH else f"{self.size}:{self.stride}"


BATCH = Axis(0, 0)


@dataclass(frozen=True)
class View:
    """The axes of each dimension, without those of size 1, and the place of the first number."""

    dims: tuple[tuple[Axis, ...], ...]
    offset: int = 0

    @classmethod
    def dense(cls, sizes: Sequence[Size]) -> "View":
        """Return the view of numbers that lie in the order of the dimensions."""
        dims: list[tuple[Axis, ...]] = []
        for k, (batched, size) in enumerate(sizes):
            axis = Axis(size, prod(inner for _, inner in sizes[k + 1 :]))
            dims.append((*([BATCH] if batched else []), *([axis] if size > 1 else [])))
        return cls(tuple(dims))

    @property
    def sizes(self) -> list[Size]:
        """The sizes of the dimensions."""
        return [(BATCH in dim, prod(axis.size for axis in dim if axis != BATCH)) for dim in self.dims]

    @property
    def keys(self) -> list[Key]:
        """All axes but that of the images, in order."""
        return [(d, k) for d, dim in enumerate(self.dims) for k, axis in enumerate(dim) if axis != BATCH]

    def axis(self, key: Key) -> Axis:
        """Return an axis."""
        return self.dims[key[0]][key[1]]

    def in_memory(self, keys: Iterable[Key]) -> list[Key]:
        """Return axes in the order in which they lie in memory, outermost first."""
        return sorted(keys, key=lambda key: -self.axis(key).stride)

    def laid(self, order: Sequence[Key]) -> "View":
        """Return the view of the same tensor with its numbers in this order of its axes, without gaps."""
        strides = dict(zip(order, strides_of([self.axis(key).size for key in order]), strict=True))
        dims = [
            tuple(axis if axis == BATCH else Axis(axis.size, strides[d, k]) for k, axis in enumerate(dim))
            for d, dim in enumerate(self.dims)
        ]
        return View(tuple(dims))

    def reshaped(self, sizes: Sequence[Size]) -> "View | None":
        """Return the view with other dimensions, or None if its numbers would have to move."""
        waiting = merged(axis for dim in self.dims for axis in dim)[::-1]
        dims: list[tuple[Axis, ...]] = []
        for batched, size in sizes:
            dim: list[Axis] = []
            left, images = size, batched
            while left > 1 or images:
                axis = waiting.pop() if waiting else Axis(1, 0)
                if axis == BATCH and images:
                    images = False
                elif axis == BATCH or left == 1 or axis.size == 1:
                    return None
                elif left % axis.size == 0:
                    left //= axis.size
                elif axis.size % left == 0:
                    inner = axis.size // left
                    waiting.append(Axis(inner, axis.stride))
                    axis, left = Axis(left, axis.stride * inner), 1
                else:
                    return None
                dim.append(axis)
            dims.append(tuple(dim))
        return None if waiting else View(tuple(dims), self.offset)

    def permuted(self, order: Sequence[int]) -> "View":
        """Return the view with its dimensions in another order."""
        return View(tuple(self.dims[d] for d in order), self.offset)

    def selected(self, dim: int, index: int) -> "View | None":
        """Return the view of one entry of a dimension."""
        if BATCH in self.dims[dim]:
            return None
        offset, rest = self.offset, index % self.sizes[dim][1]
        for axis in reversed(self.dims[dim]):
            offset += rest % axis.size * axis.stride
            rest //= axis.size
        return View((*self.dims[:dim], *self.dims[dim + 1 :]), offset)

    def sliced(self, dim: int, start: int, count: int, step: int = 1) -> "View | None":
        """Return the view of ``count`` entries of a dimension; None if its axes would have to be cut.

        A step of 0 repeats an entry.
        """
        axes = merged(self.dims[dim]) or [Axis(1, 0)]
        if (start, count, step) == (0, self.sizes[dim][1], 1):
            return self
        if len(axes) != 1 or axes == [BATCH]:
            return None
        ((_, stride),) = axes
        cut = () if count == 1 else (Axis(count, stride * step),)
        return replace(
            self, dims=(*self.dims[:dim], cut, *self.dims[dim + 1 :]), offset=self.offset + start * stride
        )  # fmt: skip

    def expanded(self, sizes: Sequence[Size]) -> "View | None":
        """Return the view with more dimensions before, and with those of size 1 repeated."""
        dims: list[tuple[Axis, ...]] = []
        missing = len(sizes) - len(self.dims)
        for own, dim, size in zip([(False, 1)] * missing + self.sizes, ((),) * missing + self.dims, sizes, strict=True):
            if own == size:
                dims.append(dim)
            elif own == (False, 1):  # one for all images is broadcast wherever images are
                dims.append(() if size[1] == 1 else (Axis(size[1], 0),))
            else:
                return None
        return View(tuple(dims), self.offset)


def merged(axes: Iterable[Axis]) -> list[Axis]:
    """Return axes with those joined that count on without a gap."""
    result: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        before = result[-1] if result else BATCH
        if BATCH not in (axis, before) and before.stride == axis.size * axis.stride:
            result[-1] = Axis(before.size * axis.size, axis.stride)
        else:
            result.append(axis)
    return result


def strides_of(sizes: Sequence[int]) -> list[int]:
    """Return the strides of numbers that lie in order.

    >>> strides_of([2, 3, 4])
    [12, 4, 1]
    """
    return [prod(sizes[k + 1 :]) for k in range(len(sizes))]
