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
            rows = _Rows(f, self, right, n, line)
            whole = f.op(f"icmp sle i64 {f.add(first, self.rows)}, {m}")
            with f.when(whole):
                rows.write(f.at(left, f.mul(first, a_m)), f.at(target, f.mul(first, line)), self.rows)
            with f.when(f.op(f"xor i1 {whole}, true")), f.loop(first, m) as row:
                rows.write(f.at(left, f.mul(row.index, a_m)), f.at(target, f.mul(row.index, line)), 1)


class _Rows:
    """Some rows of the result: those of ``a``, times all columns of ``b``."""

    def __init__(self, f: Kernel, variant: Contraction, b: str, n: str, line: str) -> None:
        self.f, self.v = f, variant
        self.b, self.n, self.line = b, n, line
        self.k, self.a_m, self.a_k, self.b_k = f.numbers("k", "a_m", "a_k", "b_k")
        self.scale = f.splat(f.lanes, f.load("float", f.pointer("scale")))

    def write(self, a: str, y: str, rows: int) -> None:
        f, v = self.f, self.v
        lanes = 1 if v.images > 1 else v.lanes
        width = v.columns * lanes
        done = f.mul(f.op(f"sdiv i64 {self.n}, {width}"), width)
        with f.loop(0, done, width) as column:
            at = f.mul(column.index, 4 * v.images)
            self._store(self._sums(a, f.at(self.b, at), rows, v.columns), f.at(y, at), "")
        with f.loop(done, self.n, lanes) as column:
            at = f.mul(column.index, 4 * v.images)
            mask = "" if v.images > 1 else f.first_lanes(f.op(f"sub i64 {self.n}, {column.index}"))
            self._store(self._sums(a, f.at(self.b, at), rows, 1), f.at(y, at), mask)

    def _sums(self, a: str, b: str, rows: int, columns: int) -> list[list[str]]:
        """Return the vectors of a tile, row by row."""
        f, v = self.f, self.v
        zero = f.vectors.constant(0.0)
        with f.loop(0, self.k, carry=[(f.kind, zero)] * (rows * columns)) as loop:
            above, beside = f.at(a, f.mul(loop.index, self.a_k)), f.at(b, f.mul(loop.index, self.b_k))
            vectors = [f.load(f.kind, f.at(beside, 4 * v.lanes * c)) for c in range(columns)]
            after = []
            for r in range(rows):
                place = f.at(above, f.mul(self.a_m, r)) if r else above
                number = f.load(f.kind, place) if v.images > 1 else f.splat(f.lanes, f.load("float", place))
                after += [f.vectors.fma(number, vectors[c], loop.values[r * columns + c]) for c in range(columns)]
            loop.after = after
        return [loop.values[r * columns : (r + 1) * columns] for r in range(rows)]

    def _store(self, sums: list[list[str]], y: str, mask: str) -> None:
        f, v = self.f, self.v
        for r, row in enumerate(sums):
            for c, total in enumerate(row):
                place = f.at(y, f.mul(self.line, r), 4 * v.lanes * c)
                value = f.vectors.mul(total, self.scale)
                if mask:
                    f.masked_store(value, place, mask)
                else:
                    f.store(f.kind, value, place)
