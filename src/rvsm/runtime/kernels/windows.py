"""Windows over single channels, for single images: depthwise convolutions, and the maximum or the mean of windows.

Each channel is first copied, with a border, to memory of the thread, the room, which stays in the cache. A row of the
room consists of a part for each phase of the stride. The inputs of neighbouring outputs are neighbours there.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from rvsm.runtime.kernels.copies import take_each
from rvsm.runtime.kernels.kernel import Kernel, Variant
from rvsm.runtime.kernels.pointwise import CODE
from rvsm.runtime.kernels.reductions import combined

TOGETHER = 4  # rows of outputs that share the vectors of the input that they read


@dataclass(frozen=True)
class Window(Variant):
    """One output channel at a time: ``rows`` × ``columns`` taps are multiplied by weights and added, or compared.

    ``mode`` is ``sum`` or ``max``; a mean is a sum with equal weights. ``down`` and ``stride`` are the strides of rows
    and columns, ``dilation`` is that of rows.
    """

    operands = (
        "x", "x_plane", "height", "width",  # the input: its rows and columns
        "each",  # output channels for each channel of the input
        "room", "room_bytes", "room_line",  # the memory of a thread, and a row in it
        "corner",  # where the first number of the input is in it
        "phases",  # where each column of the first few begins in a row of it, relative to the corner
        "y", "y_plane", "channels", "lines", "columns",
        "plain",  # so many rows of outputs end before the plane does, also if their last vector is written as a whole
        "below",  # bytes in the room from one row of outputs to the next
        "offsets",  # of the taps in a row
        "weights",  # those of the taps, and what a sum or a maximum begins with
        "weights_channel",  # bytes from channel to channel; 0 if all have the same
        "residual", "parameters",
    )  # fmt: skip
    mode: str
    rows: int
    columns: int
    down: int
    stride: int
    dilation: int
    activation: str

    @property
    def taps(self) -> int:
        """The number of taps."""
        return self.rows * self.columns

    def _write(self, f: Kernel) -> None:
        room = f.at(f.buffer("room"), f.mul(f.number("room_bytes"), "%thread"))
        border = f.vectors.constant(float("-inf") if self.mode == "max" else 0.0)
        with f.loop(0, f.number("room_bytes"), 4 * f.lanes) as place:
            f.store(f.kind, border, f.at(room, place.index))
        x, y, weights = f.buffer("x"), f.buffer("y"), f.pointer("weights")
        x_plane, y_plane, each = f.numbers("x_plane", "y_plane", "each")
        start, stop = f.share(f.number("channels"))
        with f.loop(start, stop) as channel:
            before = f.op(f"sdiv i64 {channel.index}, {each}")
            self._copy(f, f.at(x, f.mul(before, x_plane)), f.at(room, f.number("corner")))
            numbers = f.at(weights, f.mul(channel.index, f.number("weights_channel")))
            self._compute(f, room, f.at(y, f.mul(channel.index, y_plane)), f.mul(channel.index, y_plane), numbers)

    def _copy(self, f: Kernel, source: str, corner: str) -> None:
        """Copy a channel into the room, the columns of each phase behind each other."""
        width, line, phases = f.number("width"), f.number("room_line"), f.pointer("phases")
        row = f.mul(width, 4)
        with f.loop(0, f.number("height")) as k:
            here, there = f.at(source, f.mul(k.index, row)), f.at(corner, f.mul(k.index, line))
            for phase in range(self.stride):
                count = f.op(f"sdiv i64 {f.add(width, self.stride - 1 - phase)}, {self.stride}")
                place = f.load("i64", f.at(phases, 8 * phase))
                take_each(f, f.at(here, 4 * phase), f.at(there, place), count, self.stride)

    def _compute(self, f: Kernel, room: str, target: str, place: str, numbers: str) -> None:
        columns, below, table = f.number("columns"), f.number("below"), f.pointer("offsets")
        plain, lines = f.numbers("plain", "lines")
        across = [f.load("i64", f.at(table, 8 * k)) for k in range(self.columns)]
        factors = [f.splat(f.lanes, f.load("float", f.at(numbers, 4 * k))) for k in range(self.taps + 1)]
        residual, parameters = f.number("residual"), f.pointer("parameters")
        a, b = (f.splat(f.lanes, f.load("float", f.at(parameters, 4 * k))) for k in range(2))
        added = f.at(f.at("%arena", residual), place)
        row = f.mul(columns, 4)

        def results(number: str, offset: str, count: int) -> Iterator[tuple[str, str]]:
            """Yield a vector of each of so many rows of outputs, and its place; they share the inputs."""
            base = f.at(room, f.mul(number, below), offset)
            totals = [factors[-1]] * count
            for line, uses in self._uses(count).items():
                here = f.at(base, f.mul(f.number("room_line"), line))
                for k, right in enumerate(across):
                    value = f.load(f.kind, f.at(here, right))
                    for output, tap in uses:
                        if self.mode == "max":
                            totals[output] = combined(f, f.kind, "max", totals[output], value)
                        else:
                            factor = factors[tap * self.columns + k]
                            totals[output] = f.vectors.fma(factor, value, totals[output])
            for output, total in enumerate(totals):
                result = f.add(f.mul(f.add(number, output), row), offset)
                with f.unless(f.op(f"icmp slt i64 {residual}, 0"), f.kind, [total]) as final:
                    final.after = [f.vectors.add(total, f.load(f.kind, f.at(added, result)))]
                yield CODE[self.activation](f.vectors, final.values[0], a, b), f.at(target, result)

        vectors = f.op(f"sdiv i64 {f.add(columns, f.lanes - 1)}, {f.lanes}")
        several = f.mul(f.op(f"sdiv i64 {plain}, {TOGETHER}"), TOGETHER)
        # What is written beyond the end of a row lies in the next one, whose first vectors are written later.
        for start, stop, count in (("0", several, TOGETHER), (several, plain, 1)):
            with f.loop(start, stop, count) as k, f.loop(1, f.add(vectors, 1)) as back:
                offset = f.mul(f.op(f"sub i64 {vectors}, {back.index}"), 4 * f.lanes)
                for value, pointer in results(k.index, offset, count):
                    f.store(f.kind, value, pointer)
        with f.loop(plain, lines) as k, f.row_vectors(columns, ragged=True) as (offset, store):
            for value, pointer in results(k.index, offset, 1):
                store(value, pointer)

    def _uses(self, count: int) -> dict[int, list[tuple[int, int]]]:
        """Return the lines that so many rows of outputs read: for each line, the outputs and their rows of taps.

        >>> Window(8, "sum", 3, 3, 1, 1, 1, "relu")._uses(2)
        {0: [(0, 0)], 1: [(0, 1), (1, 0)], 2: [(0, 2), (1, 1)], 3: [(1, 2)]}
        """
        uses: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for output in range(count):
            for tap in range(self.rows):
                uses[output * self.down + tap * self.dilation].append((output, tap))
        return dict(sorted(uses.items()))
