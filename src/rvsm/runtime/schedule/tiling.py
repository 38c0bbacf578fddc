"""How the output of a convolution is cut into tiles, each with the kernel that computes it."""

from math import inf, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels.convolution import Convolution as Kernel
from rvsm.runtime.kernels.jit import Machine
from rvsm.runtime.plan.operation import Activation
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.schedule.step import Site
from rvsm.runtime.schedule.taps import Taps
from rvsm.runtime.schedule.weightless import mask_bits

CACHE = 48 << 10  # bytes of input that a tile may need in one pass
PANEL_CACHE = 64 << 10  # the same in a panel, which is contiguous
SHORTEST_PASS = 8  # records of a channel; a shorter pass costs more than it saves
LARGE_MAP = 3 << 20  # bytes of a map that exceeds the second-level caches; half for blocks, which compute faster

Band = tuple[int, int, int]


class Tiling(NamedTuple):
    """Tiles of one kind: the kernel, and a table with an entry for each tile."""

    kernel: Kernel
    table: NDArray[np.uint8]


def tilings(site: Site[Convolution], taps: Taps, block: int) -> list[Tiling]:
    """Return the tiles that cover the output, for blocks of ``block`` output channels."""
    over_positions = site.sources[0].geometry.unit == 1
    return [_positions(site, block)] if over_positions else _images(site, taps, block)


def _images(site: Site[Convolution], taps: Taps, block: int) -> list[Tiling]:
    """Cut the output into tiles of rows × columns; the remainder at the right and at the bottom gets smaller tiles."""
    source, g, o = site.sources[0], site.target.geometry, site.operation
    gaps = max(o.stride[k] - o.dilation[k] * (o.kernel[k] - 1) for k in range(2)) > 1  # unused rows or columns
    large = source.channels * source.geometry.plane > (LARGE_MAP if block == 1 else LARGE_MAP // 2) and not gaps
    down, right = bands(site.machine, (g.height, g.width), block)
    result, activation = [], fused(o.activation).name
    for y0, y1, r in down:
        for x0, x1, c in right:
            y, x = (axis.reshape(-1) for axis in np.mgrid[y0:y1:r, x0:x1:c])
            places = np.stack([y * taps.row + 4 * g.unit * x * taps.step, g.at(y, x)], axis=1)
            kernel = Kernel(site.machine.lanes, r, c, block, taps.step, activation, masked=False, ahead=large)
            result.append(Tiling(kernel, np.ascontiguousarray(places, dtype=np.int64).view(np.uint8)))
    return result


def bands(machine: Machine, size: tuple[int, int], block: int) -> tuple[list[Band], list[Band]]:
    """Return how rows and columns of a map are cut into tiles: first, last and step, also of the remainder."""
    limit = {1: 8, 2: 8, 4: 4} if machine.registers >= 32 else {1: 8, 2: 4, 4: 2}
    rows, columns = _tile(*size, limit[block])
    return _bands(size[0], rows), _bands(size[1], columns)


def _tile(height: int, width: int, limit: int) -> tuple[int, int]:
    """Return rows and columns of a tile of at most ``limit`` positions; exact fits are preferred, then square tiles."""

    def cost(tile: tuple[int, int]) -> tuple[float, float]:
        rows, columns = tile
        tiles = -(-height // rows) * -(-width // columns)
        return tiles * (rows * columns + 2), (rows + 2) * (columns + 2) / (rows * columns)

    sizes = [(r, c) for r in range(1, min(height, limit) + 1) for c in range(1, min(width, limit // r) + 1)]
    return min(sizes, key=cost)


def _bands(size: int, part: int) -> list[Band]:
    whole = size // part * part
    return [band for band in ((0, whole, part), (whole, size, size - whole)) if band[0] < band[1]]


def _positions(site: Site[Convolution], block: int) -> Tiling:
    """Cut the positions of the output, row after row, into vectors; a mask protects positions beyond the last one."""
    g = site.target.geometry
    length = g.height * g.width
    limit = {1: 14, 2: 8, 4: 5} if site.machine.registers >= 32 else {1: 8, 2: 4, 4: 2}
    lanes, columns = min(
        ((lanes, columns) for lanes in site.machine.widths for columns in range(1, limit[block] + 1)),
        key=lambda size: (_effort(g.width, length, size, block), -size[1]),
    )
    tiles = -(-length // (lanes * columns))
    activation = fused(site.operation.activation).name
    kernel = Kernel(lanes, 1, columns, block, 1, activation, masked=length % (lanes * columns) != 0)
    places = np.arange(tiles, dtype=np.int64) * columns * lanes * 4
    table = np.zeros((tiles, kernel.tile_bytes), dtype=np.uint8)
    table[:, :16] = np.stack([places, places], axis=1).view(np.uint8)
    if kernel.masked:
        inside = np.arange(tiles * columns * lanes) < length
        table[:, 16 : 16 + 2 * columns] = mask_bits(inside.reshape(-1, lanes)).reshape(tiles, -1)
    return Tiling(kernel, table)


def _effort(width: int, length: int, size: tuple[int, int], block: int) -> float:
    """Return about how many cycles a record takes over the whole map, for a tile of ``size`` lanes × vectors.

    A vector that crosses a cache line is loaded in two parts; this happens if rows are not multiples of a vector.
    Two vectors of 64 bytes can be loaded in a cycle, or up to three smaller ones.
    """
    lanes, columns = size
    tiles = -(-length // (lanes * columns))
    pieces = 1.0 if width % lanes == 0 else 1 + 0.6 * (4 * lanes - 4) / 64
    loads = columns * pieces / (2 if lanes == 16 else 2.4) + (1 + block) / 3
    return tiles * max(loads, columns * block / 2)


def passes(site: Site[Convolution], taps: Taps, kernel: Kernel, dense: bool) -> int:
    """Return the number of passes over the input channels for which a tile's input fits the first-level cache.

    Schedules that share their weights have powers of two, so that there are few kinds of them.
    """
    assert site.weights is not None
    o, g = site.operation, site.sources[0].geometry
    if g.unit == 1:
        span = max(1, len(taps.phases)) * (kernel.columns * kernel.lanes + taps.reach)
    else:
        sizes = (kernel.rows, kernel.columns)
        span = prod((sizes[k] - 1) * o.stride[k] + 1 + o.dilation[k] * (o.kernel[k] - 1) for k in range(2))
    channels, inputs = site.weights.shape[:2]
    wanted = -(-inputs * span * g.unit * 4 // (CACHE * kernel.block))  # a block loads each vector once for all channels
    if kernel.panel_bytes:
        wanted = -(-inputs * kernel.panel_bytes // (PANEL_CACHE * kernel.block))
    records = (prod(site.weights.shape) if dense else len(site.weights.values)) / channels
    found = int(max(1, min(wanted, records // SHORTEST_PASS, inputs)))
    return found if site.packs is None else 1 << (found.bit_length() - 1)


def fused(activation: Activation) -> Activation:
    """Return the activation that is compiled in; no activation is a clamp without ends."""
    return Activation("clamp", -inf, inf) if activation.name == "none" else activation
