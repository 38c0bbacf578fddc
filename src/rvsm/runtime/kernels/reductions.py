"""Reductions: the maximum and the mean over windows; softmax and normalization over channels."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from rvsm.runtime.kernels.kernel import Kernel, Variant, Vectors

Store = Callable[[str, str], None]
SETS = 4  # of values in turn, for sums over channels
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
class Columns(Variant):
    """What is computed from all channels of a group, at every position; vectors run over images, or over positions.

    A ``ragged`` row may end inside a vector. Threads share the vectors of all rows and groups.
    """

    operands: ClassVar[tuple[str, ...]] = (
        "x", "y", "groups", "channels", "height", "width", "row", "plane", "weights", "bias", "epsilon",
    )  # fmt: skip
    ragged: bool

    @contextmanager
    def _each(self, f: Kernel) -> Iterator[tuple[str, str, Store]]:
        """Loop over vectors of positions; yields where a group begins in both maps, and a function to store there."""
        x, y = f.buffer("x"), f.buffer("y")
        groups, channels, height, width, row, plane = f.numbers("groups", "channels", "height", "width", "row", "plane")
        across = f.op(f"sdiv i64 {f.add(width, f.lanes - 1)}, {f.lanes}")
        start, stop = f.share(f.mul(f.mul(groups, height), across))
        with f.loop(start, stop) as item:
            column = f.mul(f.op(f"srem i64 {item.index}, {across}"), f.lanes)
            above = f.op(f"sdiv i64 {item.index}, {across}")
            line, group = f.op(f"srem i64 {above}, {height}"), f.op(f"sdiv i64 {above}, {height}")
            place = f.add(f.mul(f.mul(group, channels), plane), f.add(f.mul(line, row), f.mul(column, 4)))
            mask = f.first_lanes(f.op(f"sub i64 {width}, {column}")) if self.ragged else ""

            def store(value: str, pointer: str) -> None:
                if self.ragged:
                    f.masked_store(value, pointer, mask)
                else:
                    f.store(f.kind, value, pointer)

            yield f.at(x, place), f.at(y, place), store

    def _over(self, f: Kernel, initial: list[str], step: Callable[[str, list[str]], list[str]]) -> list[str]:
        """Return what a step makes of its values over all channels, in several sets: one would wait for itself."""
        channels, size = f.number("channels"), len(initial)
        whole = f.mul(f.op(f"sdiv i64 {channels}, {SETS}"), SETS)
        with f.loop(0, whole, SETS, carry=[(f.kind, value) for value in initial * SETS]) as c:
            c.after = [
                value for k in range(SETS) for value in step(f.add(c.index, k), c.values[k * size : (k + 1) * size])
            ]
        with f.loop(whole, channels, carry=[(f.kind, value) for value in c.values[:size]]) as rest:
            rest.after = step(rest.index, rest.values)
        return [*rest.values, *c.values[size:]]

    @staticmethod
    def _sum(m: Vectors, values: list[str]) -> str:
        """Return the sum of an even number of vectors, or of one."""
        while len(values) > 1:
            values = [m.add(values[k], values[k + 1]) for k in range(0, len(values), 2)]
        return values[0]


@dataclass(frozen=True)
class Softmax(Columns):
    """y = exp(x − max) / sum, or with ``log`` (x − max) − log(sum).

    Three passes over the channels compute the maximum, the sum and the result. The maximum is subtracted to avoid
    overflow. Rounding errors of the sum are compensated (Kahan), so it is as exact for many channels as for few. If
    ``masked``, the result is zero where all numbers are −∞.
    """

    log: bool
    masked: bool

    def _write(self, f: Kernel) -> None:
        m = f.vectors
        plane = f.number("plane")
        lowest, zero = m.constant(float("-inf")), m.constant(0.0)
        with self._each(f) as (source, target, store):

            def larger(c: str, values: list[str]) -> list[str]:
                value = f.load(f.kind, f.at(source, f.mul(c, plane)))
                return [m.where("ogt", value, values[0], value, values[0])]

            most, *others = self._over(f, [lowest], larger)
            for other in others:
                most = m.where("ogt", other, most, other, most)
            if self.masked:
                most = m.where("oeq", most, lowest, zero, most)  # then all powers are zero, but for rounding

            def add(c: str, values: list[str]) -> list[str]:
                power = m.exp(m.sub(f.load(f.kind, f.at(source, f.mul(c, plane))), most))
                if not self.log:
                    store(power, f.at(target, f.mul(c, plane)))
                total, lost = values
                term = m.sub(power, lost)
                larger = m.add(total, term)
                return [larger, m.sub(m.sub(larger, total), term)]

            sums = self._over(f, [zero, zero], add)
            total = self._sum(m, [m.sub(sums[k], sums[k + 1]) for k in range(0, len(sums), 2)])
            logarithm = m.log(total) if self.log else ""
            factor = m.div(m.constant(1.0), total)
            if self.masked:
                factor = m.where("olt", total, m.constant(1e-30), zero, factor)
            with f.loop(0, f.number("channels")) as c:
                here = f.mul(c.index, plane)
                if self.log:
                    result = m.sub(m.sub(f.load(f.kind, f.at(source, here)), most), logarithm)
                else:
                    result = m.mul(f.load(f.kind, f.at(target, here)), factor)
                store(result, f.at(target, here))


@dataclass(frozen=True)
class Normalization(Columns):
    """y = weight · (x − mean) / √(mean of (x − mean)² + epsilon) + bias; the mean is 0 if it is not ``centered``.

    The mean is computed first, since E x² − (E x)² would cancel.
    """

    centered: bool

    def _write(self, f: Kernel) -> None:
        m = f.vectors
        channels, plane = f.numbers("channels", "plane")
        weights, bias, epsilon = f.pointer("weights"), f.pointer("bias"), f.load("float", f.pointer("epsilon"))
        count = f.op(f"sitofp i64 {channels} to float")
        share = f.splat(f.lanes, f.op(f"fdiv float {f.single(1.0)}, {count}"))
        zero = m.constant(0.0)
        with self._each(f) as (source, target, store):

            def add(c: str, values: list[str]) -> list[str]:
                return [m.add(values[0], f.load(f.kind, f.at(source, f.mul(c, plane))))]

            mean = m.mul(self._sum(m, self._over(f, [zero], add)), share) if self.centered else zero

            def add_square(c: str, values: list[str]) -> list[str]:
                centered = m.sub(f.load(f.kind, f.at(source, f.mul(c, plane))), mean)
                return [m.fma(centered, centered, values[0])]

            variance = m.mul(self._sum(m, self._over(f, [zero], add_square)), share)
            factor = m.div(m.constant(1.0), m.sqrt(m.add(variance, f.splat(f.lanes, epsilon))))
            with f.loop(0, channels) as c:
                here, entry = f.mul(c.index, plane), f.mul(c.index, 4)
                value = m.mul(m.sub(f.load(f.kind, f.at(source, here)), mean), factor)
                weight, shift = (f.splat(f.lanes, f.load("float", f.at(table, entry))) for table in (weights, bias))
                store(m.fma(value, weight, shift), f.at(target, here))
