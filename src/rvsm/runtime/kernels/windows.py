"""Windows over single channels, for single images: depthwise convolutions, and the maximum or the mean of windows.

Each channel is first copied, with a border, to memory of the thread, the room, which stays in the cache. A row of the
room consists of a part for each phase of the stride. The inputs of neighbouring outputs are neighbours there.
"""

from dataclasses import dataclass

from rvsm.runtime.kernels.copies import take_each
from rvsm.runtime.kernels.kernel import Kernel, Variant
from rvsm.runtime.kernels.pointwise import CODE
from rvsm.runtime.kernels.reductions import combined


@dataclass(frozen=True)
class Window(Variant):
    """One output channel at a time: ``taps`` numbers are multiplied by weights and added (``sum``), or compared.

    ``stride`` is that of the columns. ``mode`` is ``sum`` or ``max``; a mean is a sum with equal weights.
    """

    operands = (
        "x", "x_plane", "height", "width",  # the input: its rows and columns
        "each",  # output channels for each channel of the input
        "room", "room_bytes", "room_line",  # the memory of a thread, and a row in it
        "corner",  # where the first number of the input is in it
        "phases",  # where each column of the first few begins in a row of it, relative to the corner
        "y", "y_plane", "channels", "lines", "columns",
        "plain",  # so many rows of outputs end before the plane does, also if their last vector is written as a whole
        "down",  # bytes in the room from one row of outputs to the next
        "offsets",  # of the taps
        "weights",  # those of the taps, and what a sum or a maximum begins with
        "weights_channel",  # bytes from channel to channel; 0 if all have the same
        "residual", "parameters",
    )  # fmt: skip
    mode: str
    taps: int
    stride: int
    activation: str

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
        columns, down, table = f.number("columns"), f.number("down"), f.pointer("offsets")
        plain, lines = f.numbers("plain", "lines")
        offsets = [f.load("i64", f.at(table, 8 * k)) for k in range(self.taps)]
        factors = [f.splat(f.lanes, f.load("float", f.at(numbers, 4 * k))) for k in range(self.taps + 1)]
        residual, parameters = f.number("residual"), f.pointer("parameters")
        a, b = (f.splat(f.lanes, f.load("float", f.at(parameters, 4 * k))) for k in range(2))
        added = f.at(f.at("%arena", residual), place)
        row = f.mul(columns, 4)

        def line(number: str, *, ragged: bool) -> None:
            base, result = f.at(room, f.mul(number, down)), f.mul(number, row)
            with f.row_vectors(columns, ragged=ragged) as (offset, store):
                total = factors[-1]
                for tap, factor in zip(offsets, factors, strict=False):
                    value = f.load(f.kind, f.at(base, tap, offset))
                    if self.mode == "max":
                        total = combined(f, f.kind, "max", total, value)
                    else:
                        total = f.vectors.fma(factor, value, total)
                with f.unless(f.op(f"icmp slt i64 {residual}, 0"), f.kind, [total]) as final:
                    final.after = [f.vectors.add(total, f.load(f.kind, f.at(added, result, offset)))]
                store(CODE[self.activation](f.vectors, final.values[0], a, b), f.at(target, result, offset))

        with f.loop(0, plain) as k:  # what is written beyond the end of a row is replaced by the next rows
            line(k.index, ragged=False)
        with f.loop(plain, lines) as k:
            line(k.index, ragged=True)
