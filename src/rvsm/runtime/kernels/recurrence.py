"""Recurrent cells: for one position after the other, sums of gates, a sparse product with the state, and the new state.

The state lies beside the sums in scratch memory, unit by unit: two buffers for h, one to read and one to write, then
the other states, then the sums of each gate. Threads share the hidden units. They read all of h, so they must meet
before the next position; a single thread may take many positions at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from rvsm.runtime.kernels.kernel import Kernel, Variant, Vectors
from rvsm.runtime.kernels.pointwise import CODE

SETS = 4  # of sums in turn: an addition takes four cycles
BUFFERS = 2  # of h


def _sigmoid(m: Vectors, v: str) -> str:
    return CODE["sigmoid"](m, v, "", "")


def _tanh(m: Vectors, v: str) -> str:
    return CODE["tanh"](m, v, "", "")


def _lstm(m: Vectors, sums: list[str], h: str, c: str) -> list[str]:
    write, keep, new, show = sums
    after = m.fma(_sigmoid(m, keep), c, m.mul(_sigmoid(m, write), _tanh(m, new)))
    return [m.mul(_sigmoid(m, show), _tanh(m, after)), after]


def _gru(m: Vectors, sums: list[str], h: str, c: str) -> list[str]:
    """Return n + z · (h − n), where n = tanh(x + r · (W h + b)): x of the last gate is a sum of its own."""
    reset, keep, product, given = sums
    new = _tanh(m, m.fma(_sigmoid(m, reset), product, given))
    return [m.fma(_sigmoid(m, keep), m.sub(h, new), new)]


GATES: dict[str, Callable[[Vectors, list[str], str, str], list[str]]] = {
    "lstm": _lstm,
    "gru": _gru,
    "tanh": lambda m, sums, h, c: [_tanh(m, sums[0])],
    "relu": lambda m, sums, h, c: [m.clamp(sums[0], m.constant(0.0), m.constant(inf))],
}
"""The new states from the sums of the gates and the states before."""


@dataclass(frozen=True)
class Recurrence(Variant):
    """The cell, its numbers of ``gates`` and ``states``, and how the product with h is computed.

    With vectors of ``images``, a record is the offset of a unit in h and one weight. For single images it is the same,
    number by number, or an offset and the weights of a vector of ``rows``, for matrices with few zeros.
    """

    operands = (
        "x",  # the source at the first position
        "x_plane",
        "y",
        "y_plane",
        "step",  # bytes from position to position; negative for the other direction
        "first",  # the positions to take: from here …
        "last",  # … to here, without this one
        "units",
        "memory",  # the scratch memory
        "block",  # bytes of one number for all units there
        "bias",
        "offsets",
        "weights",
        "starts",  # the first record of each row, or vector of rows, and one more
        "places",  # where its sum lies, after the states
        "ranges",  # first and last unit, first and last row: for a single thread, then for each of several
    )
    cell: str
    gates: int
    states: int
    images: int
    rows: bool

    @property
    def sums(self) -> int:
        """The sums of a unit: of its gates, and one more for the part of the last gate that a GRU does not reset."""
        return self.gates + (self.cell == "gru")

    @property
    def buffers(self) -> int:
        """The blocks of scratch memory before the sums."""
        return BUFFERS + self.states - 1

    def _write(self, f: Kernel) -> None:
        x, y, memory = f.buffer("x"), f.buffer("y"), f.buffer("memory")
        first, last, step, block = f.numbers("first", "last", "step", "block")
        mine = f.at(f.pointer("ranges"), f.mul(f.part(), 32))
        begin, end, low, high = (f.load("i64", f.at(mine, 8 * k)) for k in range(4))
        sums = f.at(memory, f.mul(block, self.buffers))
        rest = f.at(memory, f.mul(block, BUFFERS))  # the states beside h
        with f.loop(first, last) as time:
            moved = f.mul(time.index, step)
            odd = f.mul(f.op(f"and i64 {time.index}, 1"), block)
            here, there = f.at(memory, odd), f.at(memory, f.op(f"sub i64 {block}, {odd}"))
            self._given(f, f.at(x, moved), sums, begin, end)
            self._products(f, here, sums, low, high)
            self._states(f, here, there, rest, sums, begin, end)
            self._results(f, [there, rest], f.at(y, moved), begin, end)

    def _one(self, f: Kernel) -> str:
        """Return the type of one number of a unit: a vector of images, or a float."""
        return f.kind if self.images > 1 else "float"

    def _given(self, f: Kernel, x: str, sums: str, begin: str, end: str) -> None:
        """Begin the sums of all gates with what the source has for them, and their biases."""
        kind, bias = self._one(f), f.pointer("bias")
        plane, units, block = f.numbers("x_plane", "units", "block")
        with f.loop(begin, end) as unit:
            target = f.at(sums, f.mul(unit.index, 4 * self.images))
            for gate in range(self.gates):
                row = f.add(f.mul(units, gate), unit.index)
                given = f.load(kind, f.at(x, f.mul(row, plane)))
                number = f.load("float", f.at(bias, f.mul(row, 4)))
                number = f.splat(f.lanes, number) if self.images > 1 else number
                place = f.at(target, f.mul(block, gate))
                if gate == self.sums - 2 and self.cell == "gru":
                    f.store(kind, number, place)
                    f.store(kind, given, f.at(place, block))
                else:
                    f.store(kind, f.op(f"fadd {kind} {given}, {number}"), place)

    def _products(self, f: Kernel, h: str, sums: str, low: str, high: str) -> None:
        """Add the products of the weights with h, row by row."""
        vector = self.rows or self.images > 1
        kind = f.kind if vector else "float"
        width = f.lanes if self.rows else 1
        offsets, weights = f.pointer("offsets"), f.pointer("weights")
        starts, places = f.pointer("starts"), f.pointer("places")

        def term(record: str, total: str) -> str:
            offset = f.op(f"sext i32 {f.load('i32', f.at(offsets, f.mul(record, 4)))} to i64")
            source, weight = f.at(h, offset), f.at(weights, f.mul(record, 4 * width))
            if not vector:
                product = f.op(f"fmul contract float {f.load('float', source)}, {f.load('float', weight)}")
                return f.op(f"fadd contract float {product}, {total}")
            state = f.splat(f.lanes, f.load("float", source)) if self.rows else f.load(f.kind, source)
            number = f.load(f.kind, weight) if self.rows else f.splat(f.lanes, f.load("float", weight))
            return f.vectors.fma(state, number, total)

        zero = f.vectors.constant(0.0) if vector else f.single(0.0)
        with f.loop(low, high) as row:
            at = f.at(starts, f.mul(row.index, 8))
            begin, end = f.load("i64", at), f.load("i64", f.at(at, 8))
            place = f.at(sums, f.load("i64", f.at(places, f.mul(row.index, 8))))
            several = f.mul(f.op(f"sdiv i64 {f.op(f'sub i64 {end}, {begin}')}, {SETS}"), SETS)
            middle = f.add(begin, several)
            initial = [f.load(kind, place), *[zero] * (SETS - 1)]
            with f.loop(begin, middle, SETS, carry=[(kind, value) for value in initial]) as loop:
                loop.after = [term(f.add(loop.index, k), value) for k, value in enumerate(loop.values)]
            a, b, c, d = loop.values
            total = f.op(f"fadd {kind} {f.op(f'fadd {kind} {a}, {b}')}, {f.op(f'fadd {kind} {c}, {d}')}")
            with f.loop(middle, end, carry=[(kind, total)]) as left:
                left.after = [term(left.index, left.values[0])]
            f.store(kind, left.values[0], place)

    def _states(self, f: Kernel, here: str, there: str, rest: str, sums: str, begin: str, end: str) -> None:  # noqa: PLR0917
        """Compute the new states; vectors run over images, or over units, whose number is padded there."""
        block = f.number("block")
        first, last = (f.mul(unit, self.images) for unit in (begin, end))
        with f.loop(first, last, f.lanes) as place:
            at = f.mul(place.index, 4)
            values = [f.load(f.kind, f.at(sums, at, f.mul(block, k))) for k in range(self.sums)]
            h = f.load(f.kind, f.at(here, at))
            c = f.load(f.kind, f.at(rest, at)) if self.states > 1 else ""
            after = GATES[self.cell](f.vectors, values, h, c)
            for value, target in zip(after, (there, rest), strict=False):
                f.store(f.kind, value, f.at(target, at))

    def _results(self, f: Kernel, states: list[str], y: str, begin: str, end: str) -> None:
        """Copy the new states to the result."""
        kind, (plane, units) = self._one(f), f.numbers("y_plane", "units")
        with f.loop(begin, end) as unit:
            for k, state in enumerate(states[: self.states]):
                value = f.load(kind, f.at(state, f.mul(unit.index, 4 * self.images)))
                channel = f.add(f.mul(units, k), unit.index)
                f.store(kind, value, f.at(y, f.mul(channel, plane)))
