"""Recurrent layers: the first states are copied into scratch memory, and then all positions follow, one by one.

For a vector of images, the product with h goes through the non-zero weights. For single images, only the rows of the
matrix could share a vector: so either each non-zero weight is taken for itself, or a vector of rows at once, zeros
included, except where all of them are zero. The faster of the two is measured.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels.kernel import Operands
from rvsm.runtime.kernels.recurrence import BUFFERS
from rvsm.runtime.kernels.recurrence import Recurrence as Kernel
from rvsm.runtime.plan.operation import Operation
from rvsm.runtime.plan.recurrence import Recurrence
from rvsm.runtime.schedule.layout import aligned
from rvsm.runtime.schedule.limits import NANOSECOND, OBJECTS
from rvsm.runtime.schedule.packing import Floats, Integers, spans
from rvsm.runtime.schedule.step import Cost, Extent, Rule, Scratch, Site, Step
from rvsm.runtime.schedule.weightless import copy

SHARED = 8e-6  # seconds of a position: if it takes longer, it pays that threads share it and meet after it
LONG = 0.05  # seconds of a position: longer ones are not tried
DENSE_UNTRIED = 0.05  # the density that decides then
STEP_BYTES = 1200  # of the Python objects of a step


@dataclass(frozen=True, eq=False)
class Way:
    """A kernel with its operands, but for positions and threads; thread t has the rows ``cuts[t]`` to ``cuts[t + 1]``.

    A row of the kernel is one of the matrix, or a vector of them.
    """

    kernel: Kernel
    operands: Operands
    cuts: Integers
    records: int

    def step(self, site: Site[Recurrence], first: int, last: int, *, share: bool) -> Step:
        """Return the step for some positions; threads ``share`` each of them, or one of them takes all."""
        everything = (0, _units(site), 0, int(self.cuts[-1]))
        parts = zip(_parts(site), pairwise(self.cuts.tolist()), strict=True)
        shared = [(*units, *rows) for units, rows in parts]
        others = shared if share else [everything, *[(0, 0, 0, 0)] * (site.threads - 1)]
        ranges = np.array([everything, *others], dtype=np.int64)
        return Step(self.kernel, {**self.operands, "ranges": ranges, "first": first, "last": last})


def _steps(site: Site[Recurrence]) -> list[Step]:
    way = _way(site)
    count, kernel = site.target.geometry.width, way.kernel
    share = site.threads > 1 and way.records * NANOSECOND > SHARED
    spans_of_time = [(t, t + 1) for t in range(count)] if share else [(0, count)]
    made = [way.step(site, first, last, share=share) for first, last in spans_of_time]
    made[0].note = (
        "vector of images" if kernel.images > 1 else f"dense {kernel.lanes} rows" if kernel.rows else "sparse"
    )
    return [*_first_states(site, kernel), *made]


def _way(site: Site[Recurrence]) -> Way:
    """Return how the product with h is computed."""
    assert site.weights is not None
    weights = site.weights.dense()
    if site.target.geometry.unit > 1 or site.choose is not None:
        return _packed(site, weights, rows=site.choose == "dense" and site.target.geometry.unit == 1)
    if len(site.weights.values) * NANOSECOND > LONG:
        return _packed(site, weights, rows=1 - site.weights.sparsity > DENSE_UNTRIED)
    ways = [_packed(site, weights, rows=rows) for rows in (False, True)]
    arena = aligned(site.arena_bytes)
    return min(ways, key=lambda way: way.step(site, 0, 1, share=False).seconds(arena))


def _packed(site: Site[Recurrence], weights: Floats, *, rows: bool) -> Way:
    """Return the records of a way: where a unit lies in h, and its weights."""
    o, (x, *_), y = site.operation, site.sources, site.target
    unit, units, padded = y.geometry.unit, _units(site), _padded(site)
    width, height = (site.machine.lanes, padded) if rows else (1, units)
    gates = np.zeros((o.numbers.gates, height, units), dtype=np.float32)
    gates[:, :units] = weights.reshape(-1, units, units)
    blocks = gates.reshape(-1, width, units)
    present = np.asarray(blocks.any(axis=1))
    counts = present.sum(axis=1)
    gate, first = np.divmod(np.arange(len(blocks)) * width, height)
    # The rows of a thread lie together; long ones come first, so that the end of the loop over records is predicted.
    owner = np.searchsorted([low for low, _ in _parts(site)[1:]], first, side="right")
    order = np.lexsort((-counts, owner))
    row, column = np.nonzero(present[order])
    records = aligned(4 * width * len(row)).view(np.float32).reshape(-1, width)
    records[:] = blocks[order[row], :, column]
    end = y.geometry.width - 1 if o.backward else 0
    operands: dict[str, int | NDArray[Any]] = {
        "x": x.at(0, end),
        "x_plane": x.geometry.plane,
        "y": y.at(0, end),
        "y_plane": y.geometry.plane,
        "step": (-4 if o.backward else 4) * unit,
        "units": units,
        "memory": site.scratch,
        "block": 4 * unit * padded,
        "offsets": (4 * unit * column).astype(np.int32),
        "weights": records,
        "starts": np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64),
        "places": (4 * unit * (gate * padded + first))[order].astype(np.int64),
    }
    if site.bias is not None:
        operands["bias"] = site.bias
    cuts = np.searchsorted(owner[order], np.arange(site.threads + 1)).astype(np.int64)
    return Way(_kernel(site, rows=rows), operands, cuts, len(row))


def _kernel(site: Site[Recurrence], *, rows: bool) -> Kernel:
    o = site.operation
    return Kernel(site.machine.lanes, o.cell, *o.numbers, site.target.geometry.unit, rows)


def _units(site: Site[Recurrence]) -> int:
    return site.target.channels // site.operation.numbers.states


def _padded(site: Site[Recurrence]) -> int:
    """Return the number of units in scratch memory: whole vectors, if vectors run over them."""
    lanes = site.machine.lanes
    return _units(site) if site.target.geometry.unit > 1 else -(-_units(site) // lanes) * lanes


def _parts(site: Site[Recurrence]) -> list[tuple[int, int]]:
    """Return the units of each thread: whole vectors, if vectors run over them."""
    width = 1 if site.target.geometry.unit > 1 else site.machine.lanes
    units = _units(site)
    return [
        (min(units, low * width), min(units, high * width)) for low, high in spans(-(-units // width), site.threads)
    ]


def _first_states(site: Site[Recurrence], kernel: Kernel) -> list[Step]:
    """Return the copies of the first states into the scratch memory: h to its first buffer, others after both."""
    source, units, unit = site.sources[1], _units(site), site.target.geometry.unit
    g, block = source.geometry, 4 * unit * _padded(site)
    table = np.array([(g.at(0, 0), 0)], dtype=np.int64)
    return [
        copy(
            site.machine, source.place + k * units * g.plane, site.scratch + (k and (BUFFERS + k - 1)) * block,
            channels=units, planes=(g.plane, 4 * unit), table=table, width=unit, ragged=unit == 1,
        )
        for k in range(kernel.states)
    ]  # fmt: skip


def _scratch(site: Site[Recurrence]) -> Scratch:
    kernel = _kernel(site, rows=False)
    blocks = kernel.buffers + kernel.sums
    return "plain", 4 * site.target.geometry.unit * _padded(site) * blocks


def _cost(extent: Extent[Recurrence]) -> Cost:
    """Return the cost of all positions: their products, and about a hundred nanoseconds for the gates of a vector."""
    o, lanes, count = extent.operation, extent.machine.lanes, extent.shape[2]
    rows, units = o.weight_shape(extent.sources)
    padded = o.numbers.gates * -(-units // lanes) * lanes * units
    vectors = units if extent.unit > 1 else -(-units // lanes)
    products = extent.nonzero if extent.unit > 1 else min(extent.nonzero, padded // lanes)
    kept = 3 * OBJECTS + count * STEP_BYTES + 32 * rows + max(8 * extent.nonzero, 4 * padded + 4 * padded // lanes)
    passing = 40 * rows * (units + lanes) + 16 * padded + 48 * extent.nonzero
    seconds = count * NANOSECOND * (products + 100 * vectors + 4 * rows)
    return Cost(kept, passing, seconds)


RULES: dict[type[Operation], Rule] = {Recurrence: Rule(_steps, _cost, _scratch)}
