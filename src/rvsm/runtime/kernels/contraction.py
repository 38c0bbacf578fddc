"""Products of two computed matrices, for each of two outer axes.

A tile of the result stays in registers: ``rows`` numbers along m times ``columns`` vectors along n. For every k, each
number of a is broadcast once and each vector of b loaded once. With vectors of images, a number is a vector.
"""

from dataclasses import dataclass

from rvsm.runtime.kernels.kernel import Kernel, Variant


@dataclass(frozen=True)
class Contraction(Variant):
    """y[o, p, m, n] = scale · Σₖ a[o, p, m, k] · b[o, p, k, n]; strides are in bytes."""

    operands = (
        "a", "b", "y", "o", "p", "m", "n", "k", "a_o", "a_p", "a_m", "a_k", "b_o", "b_p", "b_k", "scale",
    )  # fmt: skip
    images: int
    rows: int
    columns: int

    def _write(self, f: Kernel) -> None:
        a, b, y = f.buffer("a"), f.buffer("b"), f.buffer("y")
        o, p, m, n = f.numbers("o", "p", "m", "n")
        a_o, a_p, a_m, b_o, b_p = f.numbers("a_o", "a_p", "a_m", "b_o", "b_p")
        line = f.mul(n, 4 * self.images)  # bytes of a row of the result
        down = f.op(f"sdiv i64 {f.add(m, self.rows - 1)}, {self.rows}")
        start, stop = f.share(f.mul(f.mul(o, p), down))
        with f.loop(start, stop) as item:
            outer = f.op(f"sdiv i64 {item.index}, {down}")
            i, j = f.op(f"sdiv i64 {outer}, {p}"), f.op(f"srem i64 {outer}, {p}")
            first = f.mul(f.op(f"srem i64 {item.index}, {down}"), self.rows)
            left = f.at(a, f.mul(i, a_o), f.mul(j, a_p))
            right = f.at(b, f.mul(i, b_o), f.mul(j, b_p))
            target = f.at(y, f.mul(f.mul(outer, m), line))
            whole = f.op(f"icmp sle i64 {f.add(first, self.rows)}, {m}")
            with f.when(whole):
                self._rows(f, f.at(left, f.mul(first, a_m)), right, f.at(target, f.mul(first, line)), n, line, self.rows)
            with f.when(f.op(f"xor i1 {whole}, true")), f.loop(first, m) as row:
                self._rows(f, f.at(left, f.mul(row.index, a_m)), right, f.at(target, f.mul(row.index, line)), n, line, 1)

    def _rows(self, f: Kernel, a: str, b: str, y: str, n: str, line: str, rows: int) -> None:
        """Write code for all columns of some rows."""
        lanes = 1 if self.images > 1 else self.lanes
        width = self.columns * lanes
        done = f.mul(f.op(f"sdiv i64 {n}, {width}"), width)
        with f.loop(0, done, width) as column:
            at = f.mul(column.index, 4 * self.images)
            self._tile(f, a, f.at(b, at), f.at(y, at), line, (rows, self.columns), "")
        with f.loop(done, n, lanes) as column:
            at = f.mul(column.index, 4 * self.images)
            mask = "" if self.images > 1 else f.first_lanes(f.op(f"sub i64 {n}, {column.index}"))
            self._tile(f, a, f.at(b, at), f.at(y, at), line, (rows, 1), mask)

    def _tile(self, f: Kernel, a: str, b: str, y: str, line: str, size: tuple[int, int], mask: str) -> None:
        rows, columns = size
        k, a_m, a_k, b_k = f.numbers("k", "a_m", "a_k", "b_k")
        scale = f.splat(f.lanes, f.load("float", f.pointer("scale")))
        zero = f.vectors.constant(0.0)
        with f.loop(0, k, carry=[(f.kind, zero)] * (rows * columns)) as loop:
            above, beside = f.at(a, f.mul(loop.index, a_k)), f.at(b, f.mul(loop.index, b_k))
            vectors = [f.load(f.kind, f.at(beside, 4 * self.lanes * c)) for c in range(columns)]
            after = []
            for r in range(rows):
                place = f.at(above, f.mul(a_m, r)) if r else above
                number = f.load(f.kind, place) if self.images > 1 else f.splat(f.lanes, f.load("float", place))
                after += [f.vectors.fma(number, vectors[c], loop.values[r * columns + c]) for c in range(columns)]
            loop.after = after
        for r in range(rows):
            for c in range(columns):
                value = f.vectors.mul(loop.values[r * columns + c], scale)
                place = f.at(y, f.mul(line, r), 4 * self.lanes * c) if r else f.at(y, 4 * self.lanes * c)
                if mask:
                    f.masked_store(value, place, mask)
                else:
                    f.store(f.kind, value, place)
