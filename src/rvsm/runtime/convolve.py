"""The steps of a convolution: where its taps are in memory, how its output is cut into tiles, which blocks it has."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.activations import Activation
from rvsm.runtime.jit import Machine
from rvsm.runtime.kernels.convolution import SLOTS, Variant, convolution
from rvsm.runtime.layout import Arena, Buffer, runs_in_place
from rvsm.runtime.operations import Convolution
from rvsm.runtime.packing import Floats, Integers, Packed, dense_blocks, pack, sparse_blocks, thread_ranges
from rvsm.runtime.steps import Step, copy, parameters

CACHE = 48 << 10  # bytes of input that a tile may need in one pass
RECORDS = 8  # a pass shorter than this for one channel costs more than it saves
FAR = 3 << 19  # bytes of a map that does not stay in the second-level cache
MAX_OFFSET = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Taps:
    """Where the taps of a convolution are: ``place`` is that of the first tap of the first output, in the arena.

    ``offsets`` are those of the taps of one channel; ``plane`` leads to the next channel; a step down or to the right
    in the output is ``row`` bytes or ``step`` positions in the input.
    """

    place: int
    plane: int
    offsets: Integers
    row: int
    step: int
    lent: int | None = None


@dataclass(frozen=True)
class Site:
    """A convolution in its place: the operation, its buffers and the machine."""

    machine: Machine
    operation: Convolution
    x: Buffer
    y: Buffer
    residual: Buffer | None
    threads: int


def taps(site: Site, arena: Arena) -> tuple[Taps, list[Step]]:
    """Return where the taps are, and the copies that must be made first (one image and a stride)."""
    o, x, y = site.operation, site.x.geometry, site.y.geometry
    down = np.arange(o.kernel[0])[:, None] * o.dilation[0]
    right = np.arange(o.kernel[1])[None, :] * o.dilation[1]
    if x.unit > 1 or runs_in_place(o, (x.height, x.width), (y.height, y.width)):
        offsets = down * x.row + right * 4 * x.unit
        place = site.x.at(-o.padding[0], -o.padding[1])
        return Taps(place, x.plane, offsets.reshape(-1), x.row * o.stride[0], o.stride[1]), []
    # Each phase of the stride becomes a map of its own, with the output's distance from row to row.
    phases = sorted({(int(dy) % o.stride[0], int(dx) % o.stride[1]) for dy in down.flat for dx in right.flat})
    height = y.height + int(down.max()) // o.stride[0]
    width = y.width + int(right.max()) // o.stride[1]
    size = 4 * y.pitch * height
    plane = size * len(phases)
    place = arena.lend("copies", plane * site.x.channels)
    step = o.stride[1]
    steps = []
    for k, (fy, fx) in enumerate(phases):
        rows = min(height, (x.height + 2 * o.padding[0] - fy - 1) // o.stride[0] + 1)
        columns = min(width, (x.width + 2 * o.padding[1] - fx - 1) // step + 1)
        lines = [
            (x.at(line * o.stride[0] + fy - o.padding[0], fx - o.padding[1]), k * size + 4 * y.pitch * line)
            for line in range(rows)
        ]
        steps.append(
            copy(site.machine, site.x.place, place, channels=site.x.channels, planes=(x.plane, plane),
                 table=np.array(lines, dtype=np.int64), width=columns, step=step, ragged=True)
        )  # fmt: skip
        steps[-1].meet = k == len(phases) - 1
    index = np.array([[phases.index((int(a) % o.stride[0], int(b) % step)) for b in right.flat] for a in down.flat])
    offsets = index * size + (down // o.stride[0]) * 4 * y.pitch + (right // step) * 4
    return Taps(place, plane, offsets.reshape(-1), 4 * y.pitch, 1, place), steps


def steps(site: Site, taps: Taps, weights: Floats, bias: Floats, *, dense: bool, sample: bool = False) -> list[Step]:
    """Return the steps of the convolution itself.

    With ``sample`` they cover a small part of the work, which is enough to compare two ways of doing it.
    """
    o = site.operation
    inputs = site.x.channels // o.groups
    offsets = np.arange(inputs, dtype=np.int64)[:, None] * taps.plane + taps.offsets[None, :]
    group_bytes = inputs * taps.plane
    if int(offsets.max()) + group_bytes * (o.groups - 1) > MAX_OFFSET:
        raise ValueError(f"the input of {o.name!r} is larger than 2 GiB")
    blocks = dense_blocks(o.channels, o.groups) if dense else sparse_blocks(weights, o.groups)
    if sample:
        most = max(blocks, key=lambda size: blocks[size].size)
        blocks = {most: blocks[most][: 32 // most]}
    result: list[Step] = []
    for block, members in blocks.items():
        for variant, tiles in _tilings(site, taps, block):
            passes = _passes(site, variant, weights, inputs, dense)
            packed = pack(weights, bias, members, offsets, group_bytes, groups=o.groups, passes=passes, dense=dense)
            some = tiles[: max(1, 64 // variant.vectors)] if sample else tiles
            result.append(_step(site, taps, variant, some, packed))
    return result


def _step(site: Site, taps: Taps, variant: Variant, tiles: NDArray[np.uint8], packed: Packed) -> Step:
    y = site.y.geometry
    o, x = site.operation, site.x.geometry
    activation = o.activation
    if activation.name == "none":
        activation = Activation("clamp", -inf, inf)
    arguments: dict[str, int | NDArray[np.generic]] = {
        "x": taps.place,
        "y": site.y.place,
        "residual": -1 if site.residual is None else site.residual.place,
        "stream": packed.stream,
        "starts": packed.starts,
        "bias": packed.bias,
        "channels": packed.channels,
        "tiles": np.concatenate([tiles, tiles[-1:]]),
        "blocks": packed.blocks,
        "passes": packed.passes,
        "x_row": taps.row,
        "y_row": y.row,
        "y_plane": y.plane,
        "ranges": thread_ranges(len(tiles), packed, site.threads),
        "parameters": parameters(activation),
        "inputs": site.x.channels,
        "ahead_rows": (variant.rows - 1) * o.stride[0] + o.dilation[0] * (o.kernel[0] - 1) + 1,
        "ahead_row": x.row,
        "ahead_plane": taps.plane,
        "ahead_from": 4 * x.unit * o.dilation[1] * (o.kernel[1] - 1),
        "ahead_to": 4 * x.unit * ((variant.columns - 1) * taps.step + o.dilation[1] * (o.kernel[1] - 1) + 1),
    }
    note = f"{variant.rows}×{variant.columns} tiles × {variant.block}" + (
        f", {packed.passes} passes" * (packed.passes > 1)
    )
    outputs = len(tiles) * variant.vectors * len(packed.channels)
    return Step(
        variant.name,
        lambda: convolution(variant),
        SLOTS,
        arguments,
        meet=False,
        note=note,
        outputs=outputs,
        tiles=len(tiles),
    )


def _passes(site: Site, variant: Variant, weights: Floats, inputs: int, dense: bool) -> int:
    """Return in how many parts the input channels are taken, so that a tile's input stays in the first-level cache."""
    o, g = site.operation, site.x.geometry
    reach = [o.dilation[k] * (o.kernel[k] - 1) for k in range(2)]
    if variant.masked:
        span = variant.columns * variant.lanes + reach[0] * g.pitch + reach[1]
    else:
        span = ((variant.rows - 1) * o.stride[0] + 1 + reach[0]) * ((variant.columns - 1) * o.stride[1] + 1 + reach[1])
    wanted = -(-inputs * span * g.unit * 4 // CACHE)
    records = weights[0].size if dense else np.count_nonzero(weights) / len(weights)
    return max(1, min(wanted, int(records / RECORDS), inputs))


def _tilings(site: Site, taps: Taps, block: int) -> list[tuple[Variant, NDArray[np.uint8]]]:
    return _positions(site, taps, block) if site.x.geometry.unit == 1 else _images(site, taps, block)


def _images(site: Site, taps: Taps, block: int) -> list[tuple[Variant, NDArray[np.uint8]]]:
    """Cut the output into tiles of rows × columns; what is left at the right and below gets smaller tiles."""
    g = site.y.geometry
    limit = {1: 8, 2: 8, 4: 4} if site.machine.registers >= 32 else {1: 8, 2: 4, 4: 2}
    rows, columns = _tile(g.height, g.width, limit[block])
    result = []
    for y0, y1, r in _bands(g.height, rows):
        for x0, x1, c in _bands(g.width, columns):
            y, x = (axis.reshape(-1) for axis in np.mgrid[y0:y1:r, x0:x1:c])
            places = np.stack([y * taps.row + 4 * g.unit * x * taps.step, g.at(y, x)], axis=1)
            large = site.x.channels * site.x.geometry.plane > FAR
            variant = Variant(site.machine.lanes, r, c, block, taps.step, _activation(site), False, large)
            result.append((variant, np.ascontiguousarray(places, dtype=np.int64).view(np.uint8)))
    return result


def _tile(height: int, width: int, limit: int) -> tuple[int, int]:
    """Return rows and columns of a tile of at most ``limit`` positions; exact ones, and then square ones, are best."""

    def cost(tile: tuple[int, int]) -> tuple[float, float]:
        rows, columns = tile
        tiles = -(-height // rows) * -(-width // columns)
        return tiles * (rows * columns + 2), (rows + 2) * (columns + 2) / (rows * columns)

    sizes = [(r, c) for r in range(1, min(height, limit) + 1) for c in range(1, min(width, limit // r) + 1)]
    return min(sizes, key=cost)


def _bands(size: int, part: int) -> list[tuple[int, int, int]]:
    whole = size // part * part
    return [band for band in ((0, whole, part), (whole, size, size - whole)) if band[0] < band[1]]


def _positions(site: Site, taps: Taps, block: int) -> list[tuple[Variant, NDArray[np.uint8]]]:
    """Cut the rows of the output, border included, into vectors; masks keep the border as it is."""
    g = site.y.geometry
    length = (g.height - 1) * g.pitch + g.width
    limit = {1: 12, 2: 8, 4: 5} if site.machine.registers >= 32 else {1: 8, 2: 4, 4: 2}
    lanes, columns = min(
        ((lanes, columns) for lanes in site.machine.widths for columns in range(1, limit[block] + 1)),
        key=lambda size: (_effort(length, size[0], size[1], block), -size[1]),
    )
    tiles = -(-length // (lanes * columns))
    variant = Variant(lanes, 1, columns, block, 1, _activation(site), True)
    places = np.arange(tiles, dtype=np.int64) * columns * lanes * 4
    table = np.zeros((tiles, variant.tile_bytes), dtype=np.uint8)
    table[:, :16] = np.stack([places, places + g.at(0, 0)], axis=1).view(np.uint8)
    position = np.arange(tiles * columns * lanes)
    inside = (position < length) & (position % g.pitch < g.width)
    bits = np.packbits(inside.reshape(tiles, columns, lanes), axis=2, bitorder="little")
    masks = np.zeros((tiles, columns, 2), dtype=np.uint8)
    masks[:, :, : bits.shape[2]] = bits
    table[:, 16 : 16 + 2 * columns] = masks.reshape(tiles, -1)
    return [(variant, table)]


def _effort(length: int, lanes: int, columns: int, block: int) -> float:
    """Return about how many cycles a record takes over the whole map.

    A vector that crosses a cache line is loaded in two pieces, which is nearly always so with 64 bytes. Two vectors of
    64 bytes can be loaded in a cycle, or up to three smaller ones.
    """
    tiles = -(-length // (lanes * columns))
    loads = columns * (1 + (4 * lanes - 4) / 64) / (2 if lanes == 16 else 2.4) + (1 + block) / 3
    return tiles * max(loads, columns * block / 2)


def _activation(site: Site) -> str:
    name = site.operation.activation.name
    return "clamp" if name == "none" else name
