"""Reductions: the maximum and the mean over windows; softmax and normalization over channels."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from rvsm.runtime.kernels.kernel import Kernel, Variant, Vectors

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
                            place.after = [combined(f, value, self.mode, place.values[0], new)]
                        line.after = place.values
                    result = line.values[0]
                    if self.mode == "mean":
                        divisor = f.op(f"sitofp i64 {f.mul(across, along)} to double")
                        factor = f.op(f"fptrunc double {f.op(f'fdiv double 1.0, {divisor}')} to float")
                        result = f.op(f"fmul {value} {result}, {f.splat(f.lanes, factor) if vector else factor}")
                    f.store(value, result, f.at(target, down, right))


def combined(f: Kernel, value: str, mode: str, old: str, new: str) -> str:
    """Return the sum or the maximum of two values of this type; that of NaN and another number is NaN."""
    if mode == "mean":
        return f.op(f"fadd {value} {old}, {new}")
    bits = f"<{f.lanes} x i1>" if value == f.kind else "i1"
    larger = f.op(f"fcmp ogt {value} {new}, {old}")
    missing = f.op(f"fcmp uno {value} {new}, {new}")
    return f.op(f"select {bits} {f.op(f'or {bits} {larger}, {missing}')}, {value} {new}, {value} {old}")


class Entry(NamedTuple):
    """A vector of the input with its place, and functions: to store a vector, and to load a number for each channel."""

    value: str
    place: str
    store: Callable[[str, str], None]
    coefficient: Callable[[str], str]


@dataclass(frozen=True)
class Columns(Variant):
    """What is computed from all channels of a group, at every position.

    Vectors run over images, or over positions, of which a row may end inside a vector; threads share the vectors of
    all rows and groups. If there is only one position, vectors run ``along`` the channels.
    """

    operands: ClassVar[tuple[str, ...]] = (
        "x", "y", "groups", "channels", "height", "width", "row", "plane", "weights", "bias", "epsilon",
    )  # fmt: skip
    along: bool

    @contextmanager
    def _each(self, f: Kernel) -> Iterator[tuple[str, str, str]]:
        """Loop over groups and vectors of positions; yields where a group begins in both maps, and the mask."""
        x, y = f.buffer("x"), f.buffer("y")
        groups, channels, height, width, row, plane = f.numbers("groups", "channels", "height", "width", "row", "plane")
        across = "1" if self.along else f.op(f"sdiv i64 {f.add(width, f.lanes - 1)}, {f.lanes}")
        start, stop = f.share(f.mul(f.mul(groups, height), across))
        with f.loop(start, stop) as item:
            column = f.mul(f.op(f"srem i64 {item.index}, {across}"), f.lanes)
            above = f.op(f"sdiv i64 {item.index}, {across}")
            line, group = f.op(f"srem i64 {above}, {height}"), f.op(f"sdiv i64 {above}, {height}")
            place = f.add(f.mul(f.mul(group, channels), plane), f.add(f.mul(line, row), f.mul(column, 4)))
            yield f.at(x, place), f.at(y, place), f.first_lanes(f.op(f"sub i64 {width}, {column}"))

    def _over(  # noqa: PLR0917
        self, f: Kernel, source: str, mask: str, initial: list[str], neutral: str,
        step: Callable[[Entry, list[str]], list[str]],
    ) -> list[list[str]]:  # fmt: skip
        """Return what a step makes of its values over all channels: several sets, since one would wait for itself.

        ``neutral`` stands for channels beyond the last one.
        """
        channels, plane = f.numbers("channels", "plane")
        width = f.lanes if self.along else 1

        def entry(c: str, inside: str) -> Entry:
            place = f.mul(c, 4 if self.along else plane)
            if not self.along:
                value = f.load(f.kind, f.at(source, place))
                return Entry(
                    value, place, lambda v, at: f.masked_store(v, at, mask),
                    lambda table: f.splat(f.lanes, f.load("float", f.at(table, f.mul(c, 4)))),
                )  # fmt: skip
            if not inside:
                value = f.load(f.kind, f.at(source, place))
                return Entry(
                    value, place, lambda v, at: f.store(f.kind, v, at), lambda table: f.load(f.kind, f.at(table, place))
                )
            loaded = f.masked_load(f.at(source, place), inside)
            value = f.op(f"select <{f.lanes} x i1> {inside}, {f.kind} {loaded}, {f.kind} {neutral}")
            return Entry(
                value, place, lambda v, at: f.masked_store(v, at, inside),
                lambda table: f.masked_load(f.at(table, place), inside),
            )  # fmt: skip

        size, stride = len(initial), SETS * width
        whole = f.mul(f.op(f"sdiv i64 {channels}, {stride}"), stride)
        with f.loop(0, whole, stride, carry=[(f.kind, value) for value in initial * SETS]) as c:
            sets = [c.values[k * size : (k + 1) * size] for k in range(SETS)]
            c.after = [v for k in range(SETS) for v in step(entry(f.add(c.index, k * width), ""), sets[k])]
        with f.loop(whole, channels, width, carry=[(f.kind, value) for value in c.values[:size]]) as rest:
            inside = f.first_lanes(f.op(f"sub i64 {channels}, {rest.index}")) if self.along else ""
            rest.after = step(entry(rest.index, inside), rest.values)
        return [rest.values, *(c.values[k * size : (k + 1) * size] for k in range(1, SETS))]

    def _all(self, m: Vectors, values: list[str], join: Callable[[str, str], str]) -> str:
        """Return several vectors joined to one; along the channels, all lanes of it, too."""
        result = values[0]
        for value in values[1:]:
            result = join(result, value)
        shift = m.lanes // 2 if self.along else 0
        while shift:
            result = join(result, m.rotated(result, shift))
            shift //= 2
        return result


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
        lowest, zero = m.constant(float("-inf")), m.constant(0.0)

        def larger(a: str, b: str) -> str:
            return m.where("ogt", b, a, b, a)

        with self._each(f) as (source, target, mask):
            over = partial(self._over, f, mask=mask, neutral=lowest)
            highest = over(source, initial=[lowest], step=lambda x, values: [larger(values[0], x.value)])
            most = self._all(m, [values[0] for values in highest], larger)
            if self.masked:
                most = m.where("oeq", most, lowest, zero, most)  # then all powers are zero, but for rounding

            def add(x: Entry, values: list[str]) -> list[str]:
                power = m.exp(m.sub(x.value, most))
                if not self.log:
                    x.store(power, f.at(target, x.place))
                total, lost = values
                term = m.sub(power, lost)
                larger = m.add(total, term)
                return [larger, m.sub(m.sub(larger, total), term)]

            sums = over(source, initial=[zero, zero], step=add)
            total = self._all(m, [m.sub(total, lost) for total, lost in sums], m.add)
            factor = m.div(m.constant(1.0), total)
            if self.masked:
                factor = m.where("olt", total, m.constant(1e-30), zero, factor)
            logarithm = m.log(total) if self.log else ""

            def finish(x: Entry, values: list[str]) -> list[str]:
                result = m.sub(m.sub(x.value, most), logarithm) if self.log else m.mul(x.value, factor)
                x.store(result, f.at(target, x.place))
                return []

            over(source if self.log else target, initial=[], step=finish)


@dataclass(frozen=True)
class Normalization(Columns):
    """y = weight · (x − mean) / √(mean of (x − mean)² + epsilon) + bias; the mean is 0 if it is not ``centered``.

    The mean is computed first, since E x² − (E x)² would cancel.
    """

    centered: bool

    def _write(self, f: Kernel) -> None:
        m = f.vectors
        weights, bias, epsilon = f.pointer("weights"), f.pointer("bias"), f.load("float", f.pointer("epsilon"))
        count = f.op(f"sitofp i64 {f.number('channels')} to float")
        share = f.splat(f.lanes, f.op(f"fdiv float {f.single(1.0)}, {count}"))
        zero = m.constant(0.0)
        with self._each(f) as (source, target, mask):
            over = partial(self._over, f, source, mask)
            mean = zero
            if self.centered:
                sums = over([zero], zero, lambda x, values: [m.add(values[0], x.value)])
                mean = m.mul(self._all(m, [values[0] for values in sums], m.add), share)

            def add_square(x: Entry, values: list[str]) -> list[str]:
                centered = m.sub(x.value, mean)
                return [m.fma(centered, centered, values[0])]

            squares = over([zero], mean, add_square)
            variance = m.mul(self._all(m, [values[0] for values in squares], m.add), share)
            factor = m.div(m.constant(1.0), m.sqrt(m.add(variance, f.splat(f.lanes, epsilon))))

            def finish(x: Entry, values: list[str]) -> list[str]:
                value = m.mul(m.sub(x.value, mean), factor)
                x.store(m.fma(value, x.coefficient(weights), x.coefficient(bias)), f.at(target, x.place))
                return []

            over([], zero, finish)
