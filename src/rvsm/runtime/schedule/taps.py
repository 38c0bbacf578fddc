"""Where the taps of a convolution are in memory; for single images, mostly in shifted copies of its input."""

from dataclasses import dataclass, field
from math import gcd

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels.copies import Shift
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.schedule.packing import Integers
from rvsm.runtime.schedule.step import Scratch, Site, Step
from rvsm.runtime.schedule.weightless import copy, copy_operands, mask_bits

OWN_COPIES = 4 << 20  # bytes of copies that each thread may have for itself
SHORT_ROW = 4  # positions of a row; in shorter rows, every tap has its own copy of the input
MASKED_AT_ONCE = 1 << 22  # positions whose masks are made at once


@dataclass(frozen=True, eq=False)
class Taps:
    """The places of a convolution's taps: ``place`` is that of the first tap of the first output, in the arena.

    ``offsets`` are those of the taps of one channel; ``plane`` leads to the next channel; a step down or to the right
    in the output is ``row`` bytes or ``step`` positions in the input. For single images there may be copies of each
    channel, shifted by ``phases``, of ``phase_bytes`` each, with ``reach`` positions more than the output. If they are
    not too large, each thread has its own copies, of ``own`` bytes.
    """

    place: int
    plane: int
    offsets: Integers
    row: int
    step: int
    phases: Integers = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    phase_bytes: int = 0
    own: int = 0
    reach: int = 0


def taps(site: Site[Convolution]) -> Taps:
    """Return where the taps are: in the input, or in copies of it, which ``copies`` makes in the scratch memory."""
    o, x, y = site.operation, site.sources[0].geometry, site.target.geometry
    down = np.arange(o.kernel[0], dtype=np.int64) * o.dilation[0]
    right = np.arange(o.kernel[1], dtype=np.int64) * o.dilation[1]
    if x.unit > 1 or in_place(o, (y.height, y.width)):
        offsets = np.add.outer(down * x.row, right * 4 * x.unit).reshape(-1)
        place = site.sources[0].at(-o.padding[0], -o.padding[1])
        return Taps(place, x.plane, offsets, x.row * o.stride[0], o.stride[1], reach=int(offsets[-1]) // 4)
    return _shifted(site, down, right)


def in_place(o: Convolution, output: tuple[int, int]) -> bool:
    """Return whether the inputs of neighbouring outputs are neighbours in a map without border, as vectors require."""
    return o.padding == (0, 0) and ((o.stride == (1, 1) and o.kernel[1] == 1) or output == (1, 1))


def phase_count(o: Convolution, width: int) -> int:
    """Return how many copies of a channel ``taps`` will need, for an output of this width."""
    rows = o.kernel[0] if width <= SHORT_ROW else min(o.kernel[0], o.stride[0] // gcd(o.dilation[0], o.stride[0]))
    return rows * o.kernel[1]


def _shifted(site: Site[Convolution], down: Integers, right: Integers) -> Taps:
    """Return taps in copies of the input, one for each column of taps (and phase of the stride in y).

    In such a copy the inputs of neighbouring outputs are neighbours, for any stride and padding; the next row of taps
    begins one row later. Rows that are much shorter than a cache line would be unaligned, so every tap has its own copy
    there. Positions outside the map are zero.
    """
    o, y = site.operation, site.target.geometry
    first = down if y.width <= SHORT_ROW else down % o.stride[0]
    later = (down - first) // o.stride[0]
    tops, rank = np.unique(first, return_inverse=True)
    phases = np.stack([np.repeat(tops, len(right)), np.tile(right, len(tops))], axis=1)
    reach = int(later.max()) * y.width
    size = -(-4 * (y.height * y.width + reach) // 64) * 64
    plane = size * len(phases)
    amount = plane * site.sources[0].channels
    own = amount if amount <= OWN_COPIES else 0
    offsets = np.add.outer(rank * len(right) * size + later * 4 * y.width, np.arange(len(right)) * size)
    return Taps(site.scratch, plane, offsets.reshape(-1), 0, 1, phases, size, own, reach)


def scratch(site: Site[Convolution]) -> Scratch | None:
    """Return the memory that the copies need; only equal convolutions share it, so its zeros stay zero."""
    found = taps(site)
    if not len(found.phases):
        return None
    o, x = site.operation, site.sources[0]
    key = (o.kernel, o.stride, o.padding, o.dilation, x.geometry.height, x.geometry.width, x.channels)
    return key, found.plane * x.channels * (site.threads if found.own else 1)


def copies(site: Site[Convolution], taps: Taps, spans: Integers) -> list[Step]:
    """Return the steps that make the copies, often none; ``spans`` are the positions that each thread needs."""
    if not len(taps.phases):
        return []
    o, x, y = site.operation, site.sources[0].geometry, site.target.geometry
    if o.stride == (1, 1) and x.width == y.width:
        return [_whole_planes(site, taps, spans)]
    result = _single_rows(site, taps, spans)
    for step in result[:-1]:
        step.meet = False
    return result


def _whole_planes(site: Site[Convolution], taps: Taps, spans: Integers) -> Step:
    """Return the copies of maps whose rows are as long as those of the output, as shifts of whole planes.

    Masks determine which positions are copied; the others become zero.
    """
    x = site.sources[0]
    g = x.geometry
    down, right = (taps.phases - np.array(site.operation.padding, dtype=np.int64)).T
    table = np.stack([4 * (down * g.width + right), np.arange(len(down)) * taps.phase_bytes], axis=1)
    (masks, different), lanes = _masks(site, taps, down, right), site.machine.lanes
    vectors = masks.shape[1]
    operands = {
        **copy_operands(
            x.place, taps.place, channels=x.channels, planes=(g.plane, taps.plane), table=table, own=taps.own
        ),
        "masks": masks,
        "different": different,
        "copies": len(table),
        "vectors": vectors,
        "ranges": np.stack([spans[:, 0] // lanes, np.minimum(vectors, -(-spans[:, 1] // lanes))], axis=1),
    }
    return Step(Shift(lanes), operands, meet=False)


def _masks(
    site: Site[Convolution], taps: Taps, down: Integers, right: Integers
) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return which positions of each copy lie inside the map, shifted ``down`` and ``right``.

    There are few different vectors of positions, and each has a mask: −1 in the lanes that lie inside, else 0. The
    first table has the place of each vector's mask in the second. Only a few copies are handled at a time: booleans for
    all of them would take sixteen times as much memory.
    """
    x, y, lanes = site.sources[0].geometry, site.target.geometry, site.machine.lanes
    lines, columns = np.arange(y.height + taps.reach // y.width), np.arange(y.width)
    vectors = -(-len(lines) * y.width // lanes)
    bits = np.empty((len(down), vectors, 2), dtype=np.uint8)
    some = max(1, MASKED_AT_ONCE // (vectors * lanes))
    for k in range(0, len(down), some):
        rows, places = lines + down[k : k + some, None], columns + right[k : k + some, None]
        inside = ((rows >= 0) & (rows < x.height))[:, :, None] & ((places >= 0) & (places < x.width))[:, None, :]
        padded = np.zeros((len(inside), vectors * lanes), dtype=np.bool_)
        padded[:, : len(lines) * y.width] = inside.reshape(len(inside), -1)
        bits[k : k + some] = mask_bits(padded.reshape(-1, lanes)).reshape(len(inside), vectors, 2)
    codes = bits.view("<u2")[:, :, 0]
    occurs = np.zeros(1 << lanes, dtype=np.bool_)  # a table of all codes: sorting them takes sixty times as long
    occurs[codes] = True
    different = np.flatnonzero(occurs)
    masks = -((different[:, None] >> np.arange(lanes)) & 1).astype(np.int32)
    places = np.zeros(1 << lanes, dtype=np.uint32)
    places[different] = np.arange(len(different)) * 4 * lanes
    return places[codes], masks


def _single_rows(site: Site[Convolution], taps: Taps, spans: Integers) -> list[Step]:
    """Return the copies row by row, with a stride; copies whose rows have the same length are made in one step.

    The table of rows goes from line to line of the output, so that what a thread needs is a range of it.
    """
    o, source, y = site.operation, site.sources[0], site.target.geometry
    x = source.geometry
    phase, move = taps.phases.T
    first = np.maximum(0, -(-(o.padding[1] - move) // o.stride[1]))
    last = np.minimum(y.width, (x.width - 1 + o.padding[1] - move) // o.stride[1] + 1)
    lines = np.arange(y.height + taps.reach // y.width, dtype=np.int64)
    widths, starts = np.unique(np.sort(last - first), return_index=True)
    alike = np.split(np.argsort(last - first, kind="stable"), starts[1:])
    made = []
    for width, copied in zip(widths.tolist(), alike, strict=True):
        rows = (lines * o.stride[0])[:, None] + phase[copied] - o.padding[0]
        here = x.down(rows) + x.right(first * o.stride[1] + move - o.padding[1])[copied]
        there = (4 * lines * y.width)[:, None] + copied * taps.phase_bytes + 4 * first[copied]
        inside = (rows >= 0) & (rows < x.height)
        table = np.stack([here, there], axis=2)[inside]
        before = np.concatenate([[0], inside.sum(axis=1).cumsum()])  # entries of earlier lines
        needed = np.stack([spans[:, 0] // y.width, np.minimum(len(lines), -(-spans[:, 1] // y.width))], axis=1)
        if width > 0 and len(table):
            made.append(
                copy(site.machine, source.place, taps.place, channels=source.channels, planes=(x.plane, taps.plane),
                     table=table, width=width, step=o.stride[1], ragged=True, own=taps.own, ranges=before[needed])
            )  # fmt: skip
    return made
