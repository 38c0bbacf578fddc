"""The places of values in memory: maps with a border of zeros, in one arena.

For a batch, a position is a vector of images. All maps of one size have the same border, the largest that a convolution
of such a map needs. A buffer can therefore be reused for other maps while its border stays zero, and maps that are
added have the same layout. For single images, vectors run over neighbouring positions, and maps have no border:
convolutions make copies of their input, shifted by their taps, which include the border.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.plan.operation import Shape
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Plan

ALIGNMENT = 64
MAX_ARENA = 1 << 32

Index = TypeVar("Index", int, NDArray[np.int64])


class TooLargeError(ValueError):
    """A network needs more memory or time than the limit allows."""


@dataclass(frozen=True)
class Geometry:
    """The layout of a map of height × width: border, positions from row to row, rows, floats of a position."""

    height: int
    width: int
    pad_y: int
    pad_x: int
    pitch: int
    unit: int

    @property
    def bordered(self) -> bool:
        """Whether there is a border; otherwise, all numbers of a map are neighbours."""
        return self.pad_y > 0 or self.pad_x > 0

    @property
    def row(self) -> int:
        """Bytes from row to row."""
        return 4 * self.unit * self.pitch

    @property
    def plane(self) -> int:
        """Bytes from channel to channel."""
        return self.row * (self.height + 2 * self.pad_y)

    def at(self, y: Index, x: Index) -> Index:
        """Return the place of a position in its plane, in bytes; the border begins at (−pad_y, −pad_x)."""
        return self.down(y) + self.right(x)

    def down(self, y: Index) -> Index:
        """Return the contribution of a row to a place."""
        return (y + self.pad_y) * self.row

    def right(self, x: Index) -> Index:
        """Return the contribution of a column to a place."""
        return 4 * self.unit * (x + self.pad_x)


@dataclass(frozen=True)
class Buffer:
    """A map in the arena."""

    place: int
    channels: int
    geometry: Geometry

    @property
    def shape(self) -> Shape:
        """Channels, height and width."""
        return self.channels, self.geometry.height, self.geometry.width

    @property
    def bytes(self) -> int:
        """Its size in memory, with its border."""
        return self.channels * self.geometry.plane

    def at(self, y: int = 0, x: int = 0) -> int:
        """Return the place of a position of the first channel in the arena."""
        return self.place + self.geometry.at(y, x)


def geometries(plan: Plan, unit: int) -> dict[tuple[int, int], Geometry]:
    """Return the geometry of each size of map in the plan; for single images, maps have no border."""
    pads: dict[tuple[int, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    if unit > 1:
        for operation in plan.operations:
            if isinstance(operation, Convolution):
                size = plan.shapes[operation.source][1:]
                pads[size] = (max(pads[size][0], operation.padding[0]), max(pads[size][1], operation.padding[1]))
    sizes = {shape[1:] for shape in plan.shapes}
    return {(h, w): Geometry(h, w, pads[h, w][0], pads[h, w][1], w + 2 * pads[h, w][1], unit) for h, w in sizes}


class Arena:
    """Allocates places, and reuses released ones for maps of the same geometry."""

    def __init__(self) -> None:
        self.size = 0
        self._free: dict[object, list[tuple[int, int]]] = defaultdict(list)
        self._lent: dict[int, tuple[object, int]] = {}

    def lend(self, key: object, amount: int) -> int:
        """Return the place of ``amount`` bytes, which are only reused for the same ``key``."""
        amount = -(-amount // ALIGNMENT) * ALIGNMENT
        free = self._free[key]  # by size: the smallest that fits
        fitting = bisect_left(free, (amount, 0))
        if fitting < len(free):
            amount, place = free.pop(fitting)
        else:
            place, self.size = self.size, self.size + amount
            if self.size > MAX_ARENA:
                raise TooLargeError(f"the network needs more than {MAX_ARENA >> 30} GiB for its activations")
        self._lent[place] = key, amount
        return place

    def give_back(self, places: Iterable[int]) -> None:
        """Release a place."""
        for place in places:
            key, amount = self._lent.pop(place)
            insort(self._free[key], (amount, place))


def last_uses(plan: Plan) -> list[int]:
    """Return, for each value, the last operation that needs it; outputs are needed until the end."""
    last = [-1] * len(plan.shapes)
    for k, operation in enumerate(plan.operations):
        last[plan.value_of(k)] = k
        for value in operation.sources():
            last[value] = k
    for output in plan.outputs:
        last[output.value] = len(plan.operations)
    return last


def aligned(size: int) -> NDArray[np.uint8]:
    """Return ``size`` zero bytes whose address is a multiple of 64."""
    memory = np.zeros(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
