"""The steps of a convolution: where its taps are in memory, how its output is cut into tiles, which blocks it has."""

from dataclasses import dataclass, field
from math import gcd, inf, prod

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.activations import Activation
from rvsm.runtime.jit import Machine
from rvsm.runtime.kernels.convolution import SLOTS, Variant, convolution
from rvsm.runtime.layout import Arena, Buffer, TooLargeError
from rvsm.runtime.operations import Convolution
from rvsm.runtime.packing import Floats, Integers, Packed, dense_blocks, pack, sparse_blocks, thread_ranges
from rvsm.runtime.steps import Step, copy, mask_bits, parameters, shift

CACHE = 48 << 10  # bytes of input that a tile may need in one pass
RECORDS = 8  # a pass shorter than this for one channel costs more than it saves
FAR = 3 << 20  # bytes of a map that does not stay in the second-level caches; blocks, which compute faster, feel half
OWN = 4 << 20  # bytes of copies that each thread may have for itself
SHORT = 4  # positions of a row, below which every tap gets a copy of the input
SOME = 1 << 22  # positions whose masks are made at a time
MAX_OFFSET = (1 << 31) - 1

Band = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Taps:
    """Where the taps of a convolution are: ``place`` is that of the first tap of the first output, in the arena.

    ``offsets`` are those of the taps of one channel; ``plane`` leads to the next channel; a step down or to the right
    in the output is ``row`` bytes or ``step`` positions in the input. For single images there may be copies of each
    channel, shifted by ``phases``, of ``phase_bytes`` each, with ``reach`` positions more than the output. If they are
    not too large, each thread has its own, of ``own`` bytes.
    """

    place: int
    plane: int
    offsets: Integers
    row: int
    step: int
    lent: int | None = None
    phases: Integers = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    phase_bytes: int = 0
    own: int = 0
    reach: int = 0


@dataclass(frozen=True)
class Site:
    """A convolution in its place: the operation, its buffers and the machine."""

    machine: Machine
    operation: Convolution
    x: Buffer
    y: Buffer
    residual: Buffer | None
    threads: int


def taps(site: Site, arena: Arena) -> Taps:
    """Return where the taps are; for single images mostly in copies, which ``copies`` makes."""
    o, x, y = site.operation, site.x.geometry, site.y.geometry
    down = np.arange(o.kernel[0], dtype=np.int64) * o.dilation[0]
    right = np.arange(o.kernel[1], dtype=np.int64) * o.dilation[1]
    if x.unit > 1 or in_place(o, (y.height, y.width)):
        offsets = np.add.outer(down * x.row, right * 4 * x.unit).reshape(-1)
        place = site.x.at(-o.padding[0], -o.padding[1])
        return Taps(place, x.plane, offsets, x.row * o.stride[0], o.stride[1], reach=int(offsets[-1]) // 4)
    return _shifted(site, arena, down, right)


def in_place(o: Convolution, output: tuple[int, int]) -> bool:
    """Say whether the inputs of neighbouring outputs are neighbours in a map without a border, as vectors need them."""
    return o.padding == (0, 0) and ((o.stride == (1, 1) and o.kernel[1] == 1) or output == (1, 1))


def phase_count(o: Convolution, width: int) -> int:
    """Return how many copies of a channel ``taps`` will need, for an output of this width."""
    rows = o.kernel[0] if width <= SHORT else min(o.kernel[0], o.stride[0] // gcd(o.dilation[0], o.stride[0]))
    return rows * o.kernel[1]


def _shifted(site: Site, arena: Arena, down: Integers, right: Integers) -> Taps:
    """Return taps in copies of the input, one for each column of taps (and phase of the stride in y).

    In such a copy the inputs of neighbouring outputs are neighbours, whatever stride and padding are; a row of taps
    further down begins a row later. Rows that are much shorter than a cache line would begin anywhere in one: there
    every tap has a copy of its own. What lies outside of the map is zero.
    """
    o, x, y = site.operation, site.x.geometry, site.y.geometry
    first = down if y.width <= SHORT else down % o.stride[0]
    later = (down - first) // o.stride[0]
    tops, rank = np.unique(first, return_inverse=True)
    phases = np.stack([np.repeat(tops, len(right)), np.tile(right, len(tops))], axis=1)
    reach = int(later.max()) * y.width
    size = -(-4 * (y.height * y.width + reach) // 64) * 64
    plane = size * len(phases)
    key = (o.kernel, o.stride, o.padding, o.dilation, x.height, x.width, site.x.channels)
    amount = plane * site.x.channels
    own = amount if amount <= OWN else 0
    place = arena.lend(key, amount * (site.threads if own else 1))
    offsets = np.add.outer(rank * len(right) * size + later * 4 * y.width, np.arange(len(right)) * size)
    return Taps(place, plane, offsets.reshape(-1), 0, 1, place, phases, size, own, reach)


def copies(site: Site, taps: Taps, made: list[Step]) -> list[Step]:
    """Return the steps that make the copies which the steps ``made`` of the convolution need; often none."""
    if not len(taps.phases):
        return []
    o, x, y = site.operation, site.x.geometry, site.y.geometry
    if o.stride == (1, 1) and x.width == y.width:
        return [_whole_planes(site, taps, _needed(made, taps.reach))]
    result = _single_rows(site, taps)
    for step in result[:-1]:
        step.meet = False
    return result


def _needed(made: list[Step], reach: int) -> Integers:
    """Return the positions of a copy that each thread needs: those of its tiles, and what its taps reach beyond."""
    spans = []
    for step in made:
        ranges = step.arguments["ranges"]
        assert not isinstance(ranges, int)
        spans.append(ranges[:, :2].astype(np.int64) * step.tile_positions + np.array([0, reach]))
    return np.stack([np.min([s[:, 0] for s in spans], axis=0), np.max([s[:, 1] for s in spans], axis=0)], axis=1)


def _whole_planes(site: Site, taps: Taps, spans: Integers) -> Step:
    """Return the copies of maps whose rows are as long as those of the output: a shift of everything."""
    o, x = site.operation, site.x.geometry
    down, right = (taps.phases - np.array(o.padding, dtype=np.int64)).T
    table = np.stack([4 * (down * x.width + right), np.arange(len(down)) * taps.phase_bytes], axis=1)
    return shift(
        site.machine, site.x.place, taps.place, channels=site.x.channels, planes=(x.plane, taps.plane), table=table,
        masks=_masks(site, taps, down, right), own=taps.own, spans=spans,
    )  # fmt: skip


def _masks(site: Site, taps: Taps, down: Integers, right: Integers) -> NDArray[np.uint8]:
    """Return, for each copy, which of its positions lie inside of the map that is shifted ``down`` and ``right``.

    A few copies at a time: as truths, all positions of all copies would take sixteen times as much memory.
    """
    x, y, lanes = site.x.geometry, site.y.geometry, site.machine.lanes
    lines, columns = np.arange(y.height + taps.reach // y.width), np.arange(y.width)
    vectors = -(-len(lines) * y.width // lanes)
    result = np.empty((len(down), vectors, 2), dtype=np.uint8)
    some = max(1, SOME // (vectors * lanes))
    for k in range(0, len(down), some):
        rows, places = lines + down[k : k + some, None], columns + right[k : k + some, None]
        inside = ((rows >= 0) & (rows < x.height))[:, :, None] & ((places >= 0) & (places < x.width))[:, None, :]
        padded = np.zeros((len(inside), vectors * lanes), dtype=np.bool_)
        padded[:, : len(lines) * y.width] = inside.reshape(len(inside), -1)
        result[k : k + some] = mask_bits(padded.reshape(-1, lanes)).reshape(len(inside), vectors, 2)
    return result


def _single_rows(site: Site, taps: Taps) -> list[Step]:
    """Return the copies row by row, with a stride; those whose rows have the same length are made by one step."""
    o, x, y = site.operation, site.x.geometry, site.y.geometry
    phase, move = taps.phases.T
    first = np.maximum(0, -(-(o.padding[1] - move) // o.stride[1]))
    last = np.minimum(y.width, (x.width - 1 + o.padding[1] - move) // o.stride[1] + 1)
    lines = np.arange(y.height + taps.reach // y.width, dtype=np.int64)
    widths, starts = np.unique(np.sort(last - first), return_index=True)
    alike = np.split(np.argsort(last - first, kind="stable"), starts[1:])
    made = []
    for width, copied in zip(widths.tolist(), alike, strict=True):
        sources = lines * o.stride[0] + (phase[copied] - o.padding[0])[:, None]
        here = x.down(sources) + x.right(first * o.stride[1] + move - o.padding[1])[copied, None]
        there = (copied * taps.phase_bytes + 4 * first[copied])[:, None] + 4 * lines * y.width
        table = np.stack([here, there], axis=2)[(sources >= 0) & (sources < x.height)]
        if width > 0 and len(table):
            made.append(
                copy(site.machine, site.x.place, taps.place, channels=site.x.channels, planes=(x.plane, taps.plane),
                     table=table, width=width, step=o.stride[1], ragged=True, own=taps.own)
            )  # fmt: skip
    return made


def steps(site: Site, taps: Taps, weights: Floats, bias: Floats, *, dense: bool, sample: bool = False) -> list[Step]:
    """Return the steps of the convolution itself.

    With ``sample`` they cover a small part of the work, which is enough to compare two ways of doing it.
    """
    o = site.operation
    inputs = site.x.channels // o.groups
    offsets = np.arange(inputs, dtype=np.int64)[:, None] * taps.plane + taps.offsets[None, :]
    group_bytes = inputs * taps.plane
    if int(offsets.max()) + group_bytes * (o.groups - 1) > MAX_OFFSET:
        raise TooLargeError(f"the input of {o.name!r} is larger than 2 GiB")
    blocks = dense_blocks(o.channels, o.groups) if dense else sparse_blocks(weights, o.groups)
    if sample:
        most = max(blocks, key=lambda size: blocks[size].size)
        blocks = {most: blocks[most][: 32 // most]}
    result: list[Step] = []
    for block, members in blocks.items():
        for variant, tiles in _tilings(site, taps, block):
            passes = _passes(site, taps, variant, weights, dense)
            packed = pack(
                weights,
                bias,
                members,
                offsets,
                group_bytes,
                groups=o.groups,
                passes=passes,
                dense=dense,
                threads=site.threads,
            )
            some = tiles[: max(1, 64 // variant.vectors)] if sample else tiles
            result.append(_step(site, taps, variant, some, packed))
    return result


def _step(site: Site, taps: Taps, variant: Variant, tiles: NDArray[np.uint8], packed: Packed) -> Step:
    y = site.y.geometry
    o, x = site.operation, site.x.geometry
    activation = o.activation
    if activation.name == "none":
        activation = Activation("clamp", -inf, inf)
    # What lies to the left of a tile's last column of taps was fetched for the tile before. What lies above its last
    # row of taps was there a while ago; blocks, which compute faster than memory follows, ask for it again.
    again = o.dilation[0] * (o.kernel[0] - 1) if variant.block > 1 else 0
    corner = int(taps.offsets[-1]) - again * x.row
    arguments: dict[str, int | NDArray[np.generic]] = {
        "x": taps.place,
        "x_thread": taps.own,
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
        "ahead_rows": (variant.rows - 1) * o.stride[0] + 1 + again,
        "ahead_row": x.row,
        "ahead_plane": taps.plane,
        "ahead_from": corner,
        "ahead_to": corner + 4 * x.unit * ((variant.columns - 1) * taps.step + 1),
    }
    note = f"{variant.rows}×{variant.columns} tiles × {variant.block}" + (
        f", {packed.passes} passes" * (packed.passes > 1)
    )
    outputs = len(tiles) * variant.vectors * packed.blocks * packed.block
    return Step(
        variant.name,
        lambda: convolution(variant),
        SLOTS,
        arguments,
        meet=False,
        note=note,
        outputs=outputs,
        tiles=len(tiles),
        tile_positions=variant.columns * variant.lanes,
    )


def _passes(site: Site, taps: Taps, variant: Variant, weights: Floats, dense: bool) -> int:
    """Return in how many parts the input channels are taken, so that a tile's input stays in the first-level cache."""
    o, g = site.operation, site.x.geometry
    if g.unit == 1:
        span = max(1, len(taps.phases)) * (variant.columns * variant.lanes + taps.reach)
    else:
        sizes = (variant.rows, variant.columns)
        span = prod((sizes[k] - 1) * o.stride[k] + 1 + o.dilation[k] * (o.kernel[k] - 1) for k in range(2))
    inputs = weights.shape[1]
    wanted = -(-inputs * span * g.unit * 4 // (CACHE * variant.block))  # a block loads each vector once for all
    records = weights[0].size if dense else np.count_nonzero(weights) / len(weights)
    return int(max(1, min(wanted, records // RECORDS, inputs)))


def _tilings(site: Site, taps: Taps, block: int) -> list[tuple[Variant, NDArray[np.uint8]]]:
    return _positions(site, taps, block) if site.x.geometry.unit == 1 else _images(site, taps, block)


def _images(site: Site, taps: Taps, block: int) -> list[tuple[Variant, NDArray[np.uint8]]]:
    """Cut the output into tiles of rows × columns; what is left at the right and below gets smaller tiles."""
    g, o = site.y.geometry, site.operation
    result = []
    down, right = bands(site.machine, (g.height, g.width), block)
    for y0, y1, r in down:
        for x0, x1, c in right:
            y, x = (axis.reshape(-1) for axis in np.mgrid[y0:y1:r, x0:x1:c])
            places = np.stack([y * taps.row + 4 * g.unit * x * taps.step, g.at(y, x)], axis=1)
            gaps = max(o.stride[k] - o.dilation[k] * (o.kernel[k] - 1) for k in range(2)) > 1  # unused rows or columns
            large = site.x.channels * site.x.geometry.plane > (FAR if block == 1 else FAR // 2) and not gaps
            variant = Variant(site.machine.lanes, r, c, block, taps.step, _activation(site), False, large)
            result.append((variant, np.ascontiguousarray(places, dtype=np.int64).view(np.uint8)))
    return result


def bands(machine: Machine, size: tuple[int, int], block: int) -> tuple[list[Band], list[Band]]:
    """Return how rows and columns of a map are cut into tiles: first, last and step, and what is left."""
    limit = {1: 8, 2: 8, 4: 4} if machine.registers >= 32 else {1: 8, 2: 4, 4: 2}
    rows, columns = _tile(*size, limit[block])
    return _bands(size[0], rows), _bands(size[1], columns)


def _tile(height: int, width: int, limit: int) -> tuple[int, int]:
    """Return rows and columns of a tile of at most ``limit`` positions; exact ones, and then square ones, are best."""

    def cost(tile: tuple[int, int]) -> tuple[float, float]:
        rows, columns = tile
        tiles = -(-height // rows) * -(-width // columns)
        return tiles * (rows * columns + 2), (rows + 2) * (columns + 2) / (rows * columns)

    sizes = [(r, c) for r in range(1, min(height, limit) + 1) for c in range(1, min(width, limit // r) + 1)]
    return min(sizes, key=cost)


def _bands(size: int, part: int) -> list[Band]:
    whole = size // part * part
    return [band for band in ((0, whole, part), (whole, size, size - whole)) if band[0] < band[1]]


def _positions(site: Site, taps: Taps, block: int) -> list[tuple[Variant, NDArray[np.uint8]]]:
    """Cut the positions of the output, row after row, into vectors; a mask keeps what lies beyond the last as it is."""
    g = site.y.geometry
    length = g.height * g.width
    limit = {1: 12, 2: 8, 4: 5} if site.machine.registers >= 32 else {1: 8, 2: 4, 4: 2}
    lanes, columns = min(
        ((lanes, columns) for lanes in site.machine.widths for columns in range(1, limit[block] + 1)),
        key=lambda size: (_effort(g.width, length, size, block), -size[1]),
    )
    tiles = -(-length // (lanes * columns))
    variant = Variant(lanes, 1, columns, block, 1, _activation(site), length % (lanes * columns) != 0)
    places = np.arange(tiles, dtype=np.int64) * columns * lanes * 4
    table = np.zeros((tiles, variant.tile_bytes), dtype=np.uint8)
    table[:, :16] = np.stack([places, places], axis=1).view(np.uint8)
    if variant.masked:
        inside = np.arange(tiles * columns * lanes) < length
        table[:, 16 : 16 + 2 * columns] = mask_bits(inside.reshape(-1, lanes)).reshape(tiles, -1)
    return [(variant, table)]


def _effort(width: int, length: int, size: tuple[int, int], block: int) -> float:
    """Return about how many cycles a record takes over the whole map, with so many lanes and vectors in a tile.

    A vector that crosses a cache line is loaded in two pieces; rows that are no multiple of a vector make that happen.
    Two vectors of 64 bytes can be loaded in a cycle, or up to three smaller ones.
    """
    lanes, columns = size
    tiles = -(-length // (lanes * columns))
    pieces = 1.0 if width % lanes == 0 else 1 + 0.6 * (4 * lanes - 4) / 64
    loads = columns * pieces / (2 if lanes == 16 else 2.4) + (1 + block) / 3
    return tiles * max(loads, columns * block / 2)


def _activation(site: Site) -> str:
    name = site.operation.activation.name
    return "clamp" if name == "none" else name
