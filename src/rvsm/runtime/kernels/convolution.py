"""The convolution: for one tile of output positions, every stored weight is broadcast once and used for all positions.

The accumulators of a tile (``tile`` vectors for each of ``block`` output channels) stay in registers. A weight is found
in a stream of records [offset of the input, one value for each channel of the block]. Channels in one block share their
offsets, and thus each loaded vector of the input. A dense layer uses blocks of four whose records have all offsets.

The input channels may be taken in several passes, so that the part of the input that a tile needs in one pass stays in
the first-level cache. Between passes the sums are stored in the output. The window of a tile may be copied to a panel
first, where it is contiguous.
"""

from dataclasses import dataclass
from typing import NamedTuple

from rvsm.runtime.kernels.kernel import Kernel, Variant
from rvsm.runtime.kernels.pointwise import CODE


@dataclass(frozen=True)
class Convolution(Variant):
    """The values that are fixed when a convolution is compiled.

    ``rows`` × ``columns`` vectors of neighbouring positions, ``block`` output channels, ``step`` vectors from column to
    column of the input; ``masked`` if some lanes of the output must not be written; ``ahead`` if the memory of the
    next tile is fetched while one tile is computed, for maps that are larger than the second-level cache. If
    ``numbered``, records have the numbers of channels instead of offsets, and serve maps of any size. ``panel_rows`` ×
    ``panel_columns`` vectors of each channel are copied for each tile; 0 if offsets are those in the input itself.
    """

    operands = (
        "x",  # place of the input in the arena
        "x_thread",  # bytes from one thread's copies of the input to the next one's; 0 if there is one input for all
        "y",
        "residual",  # place of the map that is added before the activation; negative if there is none
        "stream",  # the records
        "starts",  # for each pass and block, where its records begin; one more entry at the end of each pass
        "bias",
        "channels",  # for each pass and each channel of each block, its number in the output; the bias is alike
        "tiles",  # for each tile, its place in the input and in the output; and the masks of its vectors
        "blocks",
        "passes",
        "x_row",  # bytes from row to row of a tile
        "y_row",
        "y_plane",  # bytes from channel to channel
        "ranges",  # first and last tile, first and last block: for a single thread, then for each of several
        "parameters",  # two floats for the activation
        "inputs",  # the prefetched memory: channels, rows of each, bytes from channel to channel, …
        "ahead_rows",
        "ahead_row",
        "ahead_plane",
        "ahead_from",  # … and which part of each row
        "ahead_to",
        "panel",  # place of the copied window in the arena
        "panel_thread",  # bytes from one thread's panel to the next one's
    )
    rows: int
    columns: int
    block: int
    step: int
    activation: str
    masked: bool
    ahead: bool = False
    numbered: bool = False
    panel_rows: int = 0
    panel_columns: int = 0

    @property
    def vectors(self) -> int:
        """Vectors in a tile."""
        return self.rows * self.columns

    @property
    def tile_bytes(self) -> int:
        """The size of a tile's entry in the table."""
        return 16 + (8 * -(-2 * self.vectors // 8) if self.masked else 0)

    @property
    def unroll(self) -> int:
        """Sets of accumulators: an addition takes four cycles, so eight must be in progress at any time."""
        return max(1, 8 // (self.vectors * self.block))

    @property
    def record_bytes(self) -> int:
        """The size of an offset and its values."""
        return 4 * (1 + self.block)

    @property
    def panel_bytes(self) -> int:
        """The size of one channel of a panel."""
        return 4 * self.lanes * self.panel_rows * self.panel_columns

    def _write(self, f: Kernel) -> None:
        tiles, ranges, starts = f.pointer("tiles"), f.pointer("ranges"), f.pointer("starts")
        x = f.at(f.buffer("x"), f.mul(f.number("x_thread"), "%thread"))
        y, blocks, passes = f.buffer("y"), f.number("blocks"), f.number("passes")
        mine = f.at(ranges, f.mul(f.part(), 32))
        first_tile, last_tile, first, last = (f.load("i64", f.at(mine, 8 * k)) for k in range(4))
        body = _Body(f, self)
        with f.loop(first_tile, last_tile) as tile:
            entry = f.at(tiles, f.mul(tile.index, self.tile_bytes))
            place = f.load("i64", f.at(entry, 8))
            source = f.at(x, f.load("i64", entry))
            following = f.at(entry, self.tile_bytes)  # the table ends with a copy of its last tile
            source = self._copied(f, source) if self.panel_bytes else source
            with f.loop(0, passes) as turn:
                begins = f.at(starts, f.mul(f.mul(turn.index, f.add(blocks, 1)), 8))
                skipped = f.mul(turn.index, blocks)
                is_first = f.op(f"icmp eq i64 {turn.index}, 0")
                is_last = f.op(f"icmp eq i64 {f.add(turn.index, 1)}, {passes}")
                with f.loop(first, last) as block:
                    body.write(
                        _Moment(entry, source, y, place, begins, is_first, is_last),
                        block.index,
                        f.add(skipped, block.index),
                    )
                    if self.ahead:
                        with f.when(is_first):
                            body.fetch(
                                f.at(x, f.load("i64", following)), f.load("i64", f.at(following, 8)), y, block.index
                            )

    def _copied(self, f: Kernel, source: str) -> str:
        """Copy the window of a tile and return its place."""
        panel = f.at(f.buffer("panel"), f.mul(f.number("panel_thread"), "%thread"))
        row, plane, vector = f.number("ahead_row"), f.number("ahead_plane"), 4 * f.lanes
        with f.loop(0, f.number("inputs")) as channel:
            here, there = f.at(source, f.mul(channel.index, plane)), f.at(panel, f.mul(channel.index, self.panel_bytes))
            for k in range(self.panel_rows):
                line = f.at(here, f.mul(row, k)) if k else here
                for column in range(self.panel_columns):
                    value = f.load(f.kind, f.at(line, vector * column))
                    f.store(f.kind, value, f.at(there, vector * (k * self.panel_columns + column)))
        return panel


class _Moment(NamedTuple):
    """Names of values that are constant in the loop over blocks: the tile and the pass."""

    entry: str
    source: str
    y: str
    place: str
    begins: str
    is_first: str
    is_last: str


class _Body:
    """One block of output channels at one tile, in one pass."""

    def __init__(self, f: Kernel, variant: Convolution) -> None:
        self.f = f
        self.v = variant
        self.stream, self.bias, self.channels = f.pointer("stream"), f.pointer("bias"), f.pointer("channels")
        self.residual, self.y_plane = f.number("residual"), f.number("y_plane")
        self.x_row, self.y_row = f.number("x_row"), f.number("y_row")
        self.plane = (
            (str(variant.panel_bytes) if variant.panel_bytes else f.number("ahead_plane")) if variant.numbered else ""
        )
        parameters = f.pointer("parameters")
        self.a = f.splat(f.lanes, f.load("float", parameters))
        self.b = f.splat(f.lanes, f.load("float", f.at(parameters, 4)))

    def write(self, now: _Moment, block: str, number: str) -> None:
        f, v = self.f, self.v
        at = f.at(now.begins, f.mul(block, 8))
        begin, end = f.load("i64", at), f.load("i64", f.at(at, 8))
        places, biases = self._places(number, now.place)
        with f.unless(now.is_first, f.kind, biases) as initial:
            initial.after = [f.load(f.kind, f.at(now.y, offset)) for offset in places]
        sums = self._accumulate(initial.values, now.source, begin, end)
        with f.unless(f.op(f"xor i1 {now.is_last}, true"), f.kind, sums) as final:
            added = self._add_residual(sums, places)
            final.after = [CODE[v.activation](f.vectors, value, self.a, self.b) for value in added]
        for k, (value, offset) in enumerate(zip(final.values, places, strict=True)):
            if v.masked:
                f.masked_store(value, f.at(now.y, offset), f.mask(f.at(now.entry, 16 + 2 * (k % v.vectors))))
            else:
                f.store(f.kind, value, f.at(now.y, offset))

    def fetch(self, source: str, place: str, y: str, block: str) -> None:
        """Prefetch the memory that this block's part of the next tile needs: input, output, residual."""
        f = self.f
        inputs, blocks = f.number("inputs"), f.number("blocks")
        low = f.op(f"sdiv i64 {f.mul(inputs, block)}, {blocks}")
        high = f.op(f"sdiv i64 {f.mul(inputs, f.add(block, 1))}, {blocks}")
        rows, row, plane = f.number("ahead_rows"), f.number("ahead_row"), f.number("ahead_plane")
        start, stop = f.number("ahead_from"), f.number("ahead_to")
        with f.loop(low, high) as channel, f.loop(0, rows) as line:
            begin = f.at(source, f.mul(channel.index, plane), f.mul(line.index, row))
            with f.loop(start, stop, 64) as place_in_row:
                f.prefetch(f.at(begin, place_in_row.index))
        places, _ = self._places(block, place)
        with f.when(f.op(f"icmp sge i64 {self.residual}, 0")):
            for offset in places:
                f.prefetch(f.at(f.at("%arena", self.residual), offset))
        for offset in places:
            f.prefetch(f.at(y, offset), write=True)

    def _places(self, block: str, place: str) -> tuple[list[str], list[str]]:
        """Return where each accumulator is stored, relative to a buffer, and its bias."""
        f, v = self.f, self.v
        places, biases = [], []
        for b in range(v.block):
            k = f.add(f.mul(block, v.block), b)
            bias = f.splat(v.lanes, f.load("float", f.at(self.bias, f.mul(k, 4))))
            channel = f.load("i64", f.at(self.channels, f.mul(k, 8)))
            corner = f.add(place, f.mul(channel, self.y_plane))
            for row in range(v.rows):
                start = f.add(corner, f.mul(self.y_row, row)) if row else corner
                places += [f.add(start, 4 * v.lanes * column) for column in range(v.columns)]
            biases += [bias] * v.vectors
        return places, biases

    def _accumulate(self, initial: list[str], source: str, begin: str, end: str) -> list[str]:
        """Return the sums over all records; with few accumulators, over several records at a time."""
        f, v = self.f, self.v
        if v.unroll == 1:
            with f.loop(begin, end, v.record_bytes, carry=[(f.kind, value) for value in initial]) as loop:
                loop.after = self._record(loop.index, source, loop.values)
            return loop.values
        several = v.unroll * v.record_bytes
        count = f.op(f"sdiv i64 {f.op(f'sub i64 {end}, {begin}')}, {several}")
        middle = f.add(begin, f.mul(count, several))
        zero = f.vectors.constant(0.0)
        sets = [*initial, *[zero] * (len(initial) * (v.unroll - 1))]
        with f.loop(begin, middle, several, carry=[(f.kind, value) for value in sets]) as loop:
            after: list[str] = []
            for k in range(v.unroll):
                part = loop.values[k * len(initial) : (k + 1) * len(initial)]
                after += self._record(f.add(loop.index, k * v.record_bytes), source, part)
            loop.after = after
        sums = loop.values[: len(initial)]
        for k in range(1, v.unroll):
            part = loop.values[k * len(initial) : (k + 1) * len(initial)]
            sums = [f.vectors.add(a, b) for a, b in zip(sums, part, strict=True)]
        with f.loop(middle, end, v.record_bytes, carry=[(f.kind, value) for value in sums]) as rest:
            rest.after = self._record(rest.index, source, rest.values)
        return rest.values

    def _record(self, index: str, source: str, sums: list[str]) -> list[str]:
        """Return the sums with one more record."""
        f, v = self.f, self.v
        record = f.at(self.stream, index)
        offset = f.op(f"sext i32 {f.load('i32', record)} to i64")
        corner = f.at(source, f.mul(offset, self.plane) if v.numbered else offset)
        weights = [f.splat(v.lanes, f.load("float", f.at(record, 4 + 4 * b))) for b in range(v.block)]
        after = list(sums)
        for row in range(v.rows):
            start = f.at(corner, f.mul(self.x_row, row)) if row else corner
            for column in range(v.columns):
                values = f.load(f.kind, f.at(start, 4 * v.lanes * v.step * column))
                for b in range(v.block):
                    k = b * v.vectors + row * v.columns + column
                    after[k] = f.vectors.fma(values, weights[b], after[k])
        return after

    def _add_residual(self, sums: list[str], places: list[str]) -> list[str]:
        f = self.f
        without = f.op(f"icmp slt i64 {self.residual}, 0")
        with f.unless(without, f.kind, sums) as added:
            source = f.at("%arena", self.residual)
            others = [f.load(f.kind, f.at(source, offset)) for offset in places]
            added.after = [f.vectors.add(a, b) for a, b in zip(sums, others, strict=True)]
        return added.values
