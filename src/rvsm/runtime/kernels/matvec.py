"""A matrix times a vector: layers with a single position, where vectors over positions would use one lane.

The numbers of a map with one position are neighbours in memory, so vectors run over the outputs. A dense matrix is
stored in blocks of outputs, and in each block column after column: an input is broadcast and multiplied by a column. A
sparse matrix is stored row after row, with the numbers of its inputs, which are gathered.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rvsm.runtime.kernels.kernel import Kernel, Variant
from rvsm.runtime.kernels.pointwise import CODE

IN_PROGRESS = 8  # an addition takes four cycles, and two can begin in each

Finish = Callable[[str, str], None]  # add, activate and store a vector of sums, at so many bytes from the first output


@dataclass(frozen=True)
class _MatVec(Variant):
    """What both have in common: the bias, the residual and the activation."""

    operands = (
        "x",
        "y",
        "residual",  # place of the vector that is added before the activation; negative if there is none
        "matrix",
        "rows",  # of a sparse matrix: where each row begins, and where the last one ends
        "bias",  # whole vectors
        "inputs",
        "outputs",
        "parameters",  # two floats for the activation
    )
    activation: str

    def _write(self, f: Kernel) -> None:
        y, bias, parameters = f.buffer("y"), f.pointer("bias"), f.pointer("parameters")
        residual, outputs = f.numbers("residual", "outputs")
        a, b = (f.splat(f.lanes, f.load("float", f.at(parameters, 4 * k))) for k in range(2))

        def finish(sums: str, offset: str) -> None:
            total = f.vectors.add(sums, f.load(f.kind, f.at(bias, offset)))
            with f.unless(f.op(f"icmp slt i64 {residual}, 0"), f.kind, [total]) as added:
                added.after = [f.vectors.add(total, f.load(f.kind, f.at(f.at("%arena", residual), offset)))]
            mask = f.first_lanes(f.op(f"sub i64 {outputs}, {f.op(f'sdiv i64 {offset}, 4')}"))
            f.masked_store(CODE[self.activation](f.vectors, added.values[0], a, b), f.at(y, offset), mask)

        self._multiply(f, finish)

    @abstractmethod
    def _multiply(self, f: Kernel, finish: Finish) -> None:
        """Compute the sums of this thread's part of the outputs."""


@dataclass(frozen=True)
class DenseMatVec(_MatVec):
    """Blocks of so many ``vectors`` of outputs; a matrix is read once, which takes as long as its memory needs."""

    vectors: int

    def _multiply(self, f: Kernel, finish: Finish) -> None:
        for first, sums in blocks_of_outputs(f, f.buffer("x"), 4, vectors=self.vectors, positions=1):
            for v, total in enumerate(sums):
                offset = f.add(f.mul(first, 4), 4 * f.lanes * v)
                with f.when(f.op(f"icmp slt i64 {offset}, {f.mul(f.number('outputs'), 4)}")):
                    finish(total, offset)


def blocks_of_outputs(
    f: Kernel, x: str, step: str | int, *, vectors: int, positions: int
) -> Iterator[tuple[str, list[str]]]:
    """Loop over this thread's blocks of outputs; yields the first output, and the sums: vector by vector, by position.

    A column of the matrix, so many ``vectors`` of outputs, is multiplied by one input at each of so many ``positions``,
    which are neighbours; the next input is ``step`` bytes away.
    """
    matrix, inputs, outputs = f.pointer("matrix"), f.number("inputs"), f.number("outputs")
    size = f.lanes * vectors
    sets = max(1, IN_PROGRESS // (vectors * positions))
    whole = f.mul(f.op(f"sdiv i64 {inputs}, {sets}"), sets)
    zeros = [(f.kind, f.vectors.constant(0.0))] * (vectors * positions)
    start, stop = f.share(f.op(f"sdiv i64 {f.add(outputs, size - 1)}, {size}"))
    with f.loop(start, stop) as block:
        columns = f.at(matrix, f.mul(f.mul(block.index, inputs), 4 * size))

        def added(k: str, sums: list[str]) -> list[str]:
            here, there = f.at(columns, f.mul(k, 4 * size)), f.at(x, f.mul(k, step))
            values = [f.load(f.kind, f.at(here, 4 * f.lanes * v)) for v in range(vectors)]
            factors = [f.splat(f.lanes, f.load("float", f.at(there, 4 * p))) for p in range(positions)]
            pairs = ((value, factor) for value in values for factor in factors)
            return [f.vectors.fma(value, factor, total) for (value, factor), total in zip(pairs, sums, strict=True)]

        with f.loop(0, whole, sets, carry=zeros * sets) as most:
            parts = [most.values[k * len(zeros) :][: len(zeros)] for k in range(sets)]
            most.after = [each for k in range(sets) for each in added(f.add(most.index, k), parts[k])]
        sums = most.values[: len(zeros)]
        for k in range(1, sets):
            others = most.values[k * len(zeros) :][: len(zeros)]
            sums = [f.vectors.add(one, other) for one, other in zip(sums, others, strict=True)]
        with f.loop(whole, inputs, carry=[(f.kind, total) for total in sums]) as rest:
            rest.after = added(rest.index, rest.values)
        yield f.mul(block.index, size), rest.values


@dataclass(frozen=True)
class SparseMatVec(_MatVec):
    """Rows of records: a vector of numbers of inputs, and a vector of values; a row's last one may not be full."""

    @property
    def record(self) -> int:
        """The size of a record."""
        return 8 * self.lanes

    def _multiply(self, f: Kernel, finish: Finish) -> None:
        x, y, matrix, rows = f.buffer("x"), f.buffer("y"), f.pointer("matrix"), f.pointer("rows")
        outputs, lanes = f.number("outputs"), f.lanes
        zero = f.vectors.constant(0.0)
        start, stop = f.share(f.op(f"sdiv i64 {f.add(outputs, lanes - 1)}, {lanes}"))

        def added(place: str, total: str) -> str:
            numbers = f.load(f.vectors.integers, f.at(matrix, place))
            values = f.load(f.kind, f.at(matrix, place, 4 * lanes))
            return f.vectors.fma(f.gather(x, numbers), values, total)

        with f.loop(start, stop) as block:
            first = f.mul(block.index, lanes)
            following = f.add(first, lanes)
            last = f.op(f"select i1 {f.op(f'icmp slt i64 {following}, {outputs}')}, i64 {following}, i64 {outputs}")
            with f.loop(first, last) as row:
                at = f.at(rows, f.mul(row.index, 8))
                begin, end = f.load("i64", at), f.load("i64", f.at(at, 8))
                pairs = f.op(f"sdiv i64 {f.op(f'sub i64 {end}, {begin}')}, {2 * self.record}")
                middle = f.add(begin, f.mul(pairs, 2 * self.record))
                with f.loop(begin, middle, 2 * self.record, carry=[(f.kind, zero)] * 2) as two:
                    even, odd = two.values
                    two.after = [added(two.index, even), added(f.add(two.index, self.record), odd)]
                both = f.vectors.add(*two.values)
                with f.loop(middle, end, self.record, carry=[(f.kind, both)]) as one:
                    one.after = [added(one.index, one.values[0])]
                f.store("float", f.vectors.sum(one.values[0]), f.at(y, f.mul(row.index, 4)))
            offset = f.mul(first, 4)
            finish(f.load(f.kind, f.at(y, offset)), offset)
