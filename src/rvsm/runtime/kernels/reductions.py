"""Reductions: the maximum and the mean over windows, and the softmax over channels."""

from dataclasses import dataclass

from rvsm.runtime.kernels.kernel import Kernel, Variant

ENTRY_BYTES = 32  # place in the input, place in the output, positions in the window, and their factor of the divisor


@dataclass(frozen=True)
class Pooling(Variant):
    """The ``max`` or the ``mean`` (sum / divisor) of windows.

    Windows are products of rows and columns: two small tables hold where they begin and how many positions they have. A
    position is a vector of images, or one float if ``images`` is 1. Like PyTorch's, the maximum of a window with NaN
    is NaN.
    """

    operands = ("x", "y", "channels", "x_plane", "y_plane", "lines", "height", "columns", "width", "row", "column")
    mode: str
    images: int

    def _write(self, f: Kernel) -> None:
        vector = self.images > 1
        value = f.kind if vector else "float"
        x, y, lines, columns = f.buffer("x"), f.buffer("y"), f.pointer("lines"), f.pointer("columns")
        height, width, row, column = f.numbers("height", "width", "row", "column")
        x_plane, y_plane = f.numbers("x_plane", "y_plane")
        start, stop = f.share(f.number("channels"))
        literal = f.single(float("-inf") if self.mode == "max" else 0.0)
        initial = f.splat(f.lanes, literal) if vector else literal
        with f.loop(start, stop) as channel:
            source, target = f.at(x, f.mul(channel.index, x_plane)), f.at(y, f.mul(channel.index, y_plane))
            with f.loop(0, height) as j:
                above = f.at(lines, f.mul(j.index, ENTRY_BYTES))
                top, down, tall, across = (f.load("i64", f.at(above, 8 * k)) for k in range(4))
                with f.loop(0, width) as i:
                    beside = f.at(columns, f.mul(i.index, ENTRY_BYTES))
                    left, right, wide, along = (f.load("i64", f.at(beside, 8 * k)) for k in range(4))
                    corner = f.at(source, top, left)
                    with f.loop(0, tall, carry=[(value, initial)]) as line:
                        begin = f.at(corner, f.mul(line.index, row))
                        with f.loop(0, wide, carry=[(value, line.values[0])]) as place:
                            new = f.load(value, f.at(begin, f.mul(place.index, column)))
                            place.after = [self._combined(f, value, place.values[0], new)]
                        line.after = place.values
                    result = line.values[0]
                    if self.mode == "mean":
                        divisor = f.op(f"sitofp i64 {f.mul(across, along)} to double")
                        factor = f.op(f"fptrunc double {f.op(f'fdiv double 1.0, {divisor}')} to float")
                        result = f.op(f"fmul {value} {result}, {f.splat(f.lanes, factor) if vector else factor}")
                    f.store(value, result, f.at(target, down, right))

    def _combined(self, f: Kernel, value: str, old: str, new: str) -> str:
        if self.mode == "mean":
            return f.op(f"fadd {value} {old}, {new}")
        bits = f"<{f.lanes} x i1>" if value == f.kind else "i1"
        larger = f.op(f"fcmp ogt {value} {new}, {old}")
        missing = f.op(f"fcmp uno {value} {new}, {new}")
        return f.op(f"select {bits} {f.op(f'or {bits} {larger}, {missing}')}, {value} {new}, {value} {old}")


@dataclass(frozen=True)
class Softmax(Variant):
    """y = exp(x − max) / sum, or with ``log`` (x − max) − log(sum); vectors run over images, or over positions.

    Three passes over the channels compute the maximum, the sum and the result. The maximum is subtracted to avoid
    overflow. Rounding errors of the sum are compensated (Kahan), so it is as exact for many channels as for few. A
    ``ragged`` row may end inside a vector.
    """

    operands = ("x", "y", "channels", "height", "width", "row", "plane")
    log: bool
    ragged: bool

    def _write(self, f: Kernel) -> None:
        m = f.vectors
        x, y = f.buffer("x"), f.buffer("y")
        channels, height, width, row, plane = f.numbers("channels", "height", "width", "row", "plane")
        lowest, zero = m.constant(float("-inf")), m.constant(0.0)
        start, stop = f.share(height)
        with f.loop(start, stop) as line, f.row_vectors(width, ragged=self.ragged) as (offset, store):
            place = f.add(f.mul(line.index, row), offset)
            source, target = f.at(x, place), f.at(y, place)
            with f.loop(0, channels, carry=[(f.kind, lowest)]) as c:
                value = f.load(f.kind, f.at(source, f.mul(c.index, plane)))
                c.after = [m.where("ogt", value, c.values[0], value, c.values[0])]
            most = c.values[0]
            with f.loop(0, channels, carry=[(f.kind, zero), (f.kind, zero)]) as c:
                power = m.exp(m.sub(f.load(f.kind, f.at(source, f.mul(c.index, plane))), most))
                if not self.log:
                    store(power, f.at(target, f.mul(c.index, plane)))
                total, lost = c.values
                term = m.sub(power, lost)
                larger = m.add(total, term)
                c.after = [larger, m.sub(m.sub(larger, total), term)]
            total = c.values[0]
            logarithm = m.log(total) if self.log else ""
            with f.loop(0, channels) as c:
                here = f.mul(c.index, plane)
                if self.log:
                    result = m.sub(m.sub(f.load(f.kind, f.at(source, here)), most), logarithm)
                else:
                    result = m.div(f.load(f.kind, f.at(target, here)), total)
                store(result, f.at(target, here))
