"""The convolution: turns taps, tiles and packed weights into steps of the sparse or the dense kernel."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache, partial
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels.convolution import Convolution as Kernel
from rvsm.runtime.kernels.kernel import Operands
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.schedule import columns, matvec, panels, windows
from rvsm.runtime.schedule.choice import DENSE_ABOVE, SPARSE_BELOW, clear_choice
from rvsm.runtime.schedule.layout import TooLargeError, aligned
from rvsm.runtime.schedule.limits import COPY, MULTIPLY, NANOSECOND, OBJECTS
from rvsm.runtime.schedule.packing import Floats, Integers, Packed, dense_blocks, pack, sparse_blocks, thread_ranges
from rvsm.runtime.schedule.step import Cost, Extent, Rule, Site, Step, parameters
from rvsm.runtime.schedule.taps import MASKED_AT_ONCE, SHORT_ROW, Taps, copies, in_place, phase_count, scratch, taps
from rvsm.runtime.schedule.tiling import Tiling, bands, fused, passes, tilings

DENSE_UNTRIED = 0.5  # the density that decides if a trial would take too long
LONG = 0.25  # seconds: longer samples, with kernels as large as an image, are not run
MAX_OFFSET = (1 << 31) - 1

Made = TypeVar("Made")


def steps(site: Site[Convolution]) -> list[Step]:
    """Return the copies of the input that are needed, and the steps of the convolution itself."""
    assert site.weights is not None
    if windows.fits(site):
        return windows.depthwise(site)
    if matvec.fits(site):
        return [matvec.step(site, _shared(site, "matrix", lambda: matvec.matrix(site)))]
    where, weights = taps(site), cache(site.weights.dense)
    way = _shared(site, "way", lambda: _way(site, where, weights))
    if way == "dense" and columns.fits(site, where):
        return [*copies(site, where, columns.spans(site, where)), columns.step(site, where, weights)]
    made = _compute(site, where, weights, dense=way == "dense")
    made[0].note = f"{way} {made[0].note}"
    return [*copies(site, where, _spans(made, where.reach)), *made]


def _shared(site: Site[Convolution], key: Hashable, make: Callable[[], Made]) -> Made:
    """Return what schedules of the same weights have in common, made once."""
    if site.packs is None:
        return make()
    key = (id(site.weights), key)
    if key not in site.packs:
        site.packs[key] = make()
    found: Made = site.packs[key]
    return found


def _way(site: Site[Convolution], where: Taps, weights: Callable[[], Floats]) -> str:
    """Return whether this layer is faster sparse or dense."""
    assert site.weights is not None
    if (clear := clear_choice(site)) is not None:
        return clear
    seconds, arena = {}, aligned(site.arena_bytes)
    for way in ("sparse", "dense"):
        if way == "dense" and columns.fits(site, where):
            # Per output, as below, where such a map is a single tile.
            seconds[way] = columns.step(site, where, weights).seconds(arena) / site.operation.channels
            continue
        sample = _compute(site, where, weights, dense=way == "dense", sample=True)
        tiles = [len(_table(step, "tiles")) - 1 for step in sample]
        # A number in a stream takes about a nanosecond at each tile.
        guess = NANOSECOND * sum(n * _table(step, "stream").size for n, step in zip(tiles, sample, strict=True))
        if guess > LONG:
            return "dense" if 1 - site.weights.sparsity > DENSE_UNTRIED else "sparse"
        outputs = [_kernel(step).vectors * _table(step, "channels")[0].size for step in sample]
        total = sum(n * size for n, size in zip(tiles, outputs, strict=True))
        seconds[way] = sum(step.seconds(arena) for step in sample) / total
    return min(seconds, key=seconds.__getitem__)


def _compute(
    site: Site[Convolution], where: Taps, weights: Callable[[], Floats], *, dense: bool, sample: bool = False
) -> list[Step]:  # fmt: skip
    """Return the steps for all blocks of channels and all tiles; for a ``sample``, a few of both."""
    o = site.operation
    assert site.bias is not None
    inputs = site.sources[0].channels // o.groups
    numbered = site.packs is not None and o.kernel == (1, 1) and not len(where.phases)
    blocks = dict(
        _shared(
            site,
            ("blocks", dense),
            lambda: dense_blocks(o.channels, o.groups) if dense else sparse_blocks(weights(), o.groups),
        )
    )
    if sample:
        most = max(blocks, key=lambda size: blocks[size].size)
        blocks = {most: blocks[most][: 32 // most]}
    result: list[Step] = []
    for block, members in blocks.items():
        for plain, tiles in tilings(site, where, block):
            kernel, read = panels.paneled(site, where, plain, dense=dense)
            plane = 1 if numbered else read.plane
            offsets = np.arange(inputs, dtype=np.int64)[:, None] * plane + read.offsets[None, :]
            if int(offsets.max()) + inputs * plane * (o.groups - 1) > MAX_OFFSET:
                raise TooLargeError(f"the input of {o.name!r} is larger than 2 GiB")
            count = passes(site, where, kernel, dense)
            make = partial(
                _pack, site, weights, members, offsets, inputs * plane, dense=dense, passes=count
            )  # fmt: skip
            packed = _shared(site, ("packed", dense, block, count), make) if numbered and not sample else make()
            some = tiles[: max(1, 64 // kernel.vectors)] if sample else tiles
            result.append(_step(site, where, Tiling(replace(kernel, numbered=numbered), some), packed, read.row))
    return result


def _pack(
    site: Site[Convolution], weights: Callable[[], Floats], members: Integers, offsets: Integers, group_bytes: int,
    *, dense: bool, passes: int,
) -> Packed:  # fmt: skip
    assert site.bias is not None
    return pack(
        weights(), site.bias, members, offsets, group_bytes, groups=site.operation.groups, dense=dense,
        threads=site.threads, passes=passes,
    )  # fmt: skip


def _step(site: Site[Convolution], where: Taps, tiling: Tiling, packed: Packed, row: int) -> Step:
    o, (kernel, tiles) = site.operation, tiling
    x, y = site.sources[0].geometry, site.target.geometry
    # Memory to the left of a tile's last column of taps was fetched for the previous tile. Memory above its last row of
    # taps was fetched earlier; blocks, which compute faster than memory can deliver, prefetch it again.
    again = o.dilation[0] * (o.kernel[0] - 1) if kernel.block > 1 else 0
    corner = int(where.offsets[-1]) - again * x.row
    operands: Operands = {
        "x": where.place,
        "x_thread": where.own,
        "y": site.target.place,
        "residual": site.sources[1].place if len(site.sources) > 1 else -1,
        "stream": packed.stream,
        "starts": packed.starts,
        "bias": packed.bias,
        "channels": packed.channels,
        "tiles": np.concatenate([tiles, tiles[-1:]]),
        "blocks": packed.blocks,
        "passes": packed.passes,
        "x_row": row,
        "y_row": y.row,
        "y_plane": y.plane,
        "ranges": thread_ranges(len(tiles), packed, site.threads, site.sources[0].channels * where.plane),
        "parameters": parameters(fused(o.activation)),
        "inputs": site.sources[0].channels,
        "ahead_rows": (kernel.rows - 1) * o.stride[0] + 1 + again,
        "ahead_row": x.row,
        "ahead_plane": where.plane,
        "ahead_from": corner,
        "ahead_to": corner + 4 * x.unit * ((kernel.columns - 1) * where.step + 1),
        "panel": site.scratch,
        "panel_thread": panels.room(site, where) if kernel.panel_bytes else 0,
    }
    several = f", {packed.passes} passes" if packed.passes > 1 else ""
    note = f"{kernel.rows}×{kernel.columns} tiles × {kernel.block}{several}"
    return Step(kernel, operands, meet=False, note=note)


def _spans(made: list[Step], reach: int) -> Integers:
    """Return the positions of the input that each thread needs: those of its tiles, extended by the taps."""
    positions = [_kernel(step).columns * _kernel(step).lanes for step in made]
    ranges = [_table(step, "ranges")[:, :2].astype(np.int64) for step in made]
    spans = [r * n + np.array([0, reach]) for r, n in zip(ranges, positions, strict=True)]
    return np.stack([np.min([s[:, 0] for s in spans], axis=0), np.max([s[:, 1] for s in spans], axis=0)], axis=1)


def cost(extent: Extent[Convolution]) -> Cost:
    """Return the cost of a convolution: its streams of weights, its tiles, and the copies of its input."""
    if matvec.suits(extent.operation, extent.sources[0], extent.shape, extent.unit):
        return matvec.cost(extent)
    o, source, shape, unit, machine = extent.operation, extent.sources[0], extent.shape, extent.unit, extent.machine
    weights, taps = prod(o.weight_shape(extent.sources)), prod(o.kernel)
    density = extent.nonzero / weights
    sparse = extent.nonzero if density < DENSE_ABOVE else 0  # records of the sparse and of the dense kernel …
    dense = weights if density > SPARSE_BELOW else 0  # … of which both may be tried
    whole_blocks = (o.channels // o.groups) % 4 == 0
    stream = max((8 + 3) * sparse, (5 + 2 if whole_blocks else 8 + 3) * dense)  # and where each pass begins
    records = max(sparse, dense // 4 if whole_blocks else dense)
    positions = shape[1] * shape[2]
    vectors = positions if unit > 1 else -(-positions // machine.lanes)
    streams = max(prod(map(len, bands(machine, shape[1:], block))) for block in (1, 2, 4)) if unit > 1 else 1
    kept = OBJECTS * streams + streams * (stream + 64 * o.channels) + 16 * taps + 40 * vectors
    kept += 4 * (weights + o.channels) if unit == 1 and o.groups == source[0] else 0  # channel by channel, all weights
    if unit == 1 and dense and columns.suits(o, shape[1:], machine.lanes):
        kept += columns.matrix_bytes(o.channels, weights, machine.lanes)
    passing = 16 * weights + 64 * records + 64 * taps + 8 * weights // o.channels + 64 * vectors
    seconds = MULTIPLY * vectors * (weights if density >= DENSE_ABOVE else extent.nonzero)
    seconds += NANOSECOND * vectors * o.channels
    if unit == 1 and not in_place(o, shape[1:]):
        copied = phase_count(o, shape[2])
        below = 0 if shape[2] <= SHORT_ROW else o.dilation[0] * (o.kernel[0] - 1) // o.stride[0]
        lines = shape[1] + below
        each = lines * shape[2]  # positions of a copy; masks are made for some at a time
        masked = -(-each // machine.lanes)
        kept += copied * (16 + max(16 * lines, 4 * masked)) + 4 * machine.lanes * copied * min(
            masked, 3 * machine.lanes
        )
        passing += copied * (64 + 64 * lines + each) + 8 * min(max(MASKED_AT_ONCE, each), copied * each)
        passing += 5 << machine.lanes  # tables of all masks
        vectors = masked if o.stride[1] <= 2 else each  # a larger stride is copied one by one
        seconds += COPY * source[0] * copied * vectors
    return Cost(kept, passing, seconds)


def _table(step: Step, operand: str) -> NDArray[Any]:
    table = step.operands[operand]
    assert isinstance(table, np.ndarray)
    return table


def _kernel(step: Step) -> Kernel:
    assert isinstance(step.variant, Kernel)
    return step.variant


CONVOLUTION = Rule(steps, cost, lambda site: windows.scratch(site) or scratch(site) or panels.scratch(site))
