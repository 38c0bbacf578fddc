"""The common part of all kernels: their names, their row of operands, arithmetic on vectors.

The player calls a kernel with its row: the function, the barrier, and then one slot of 8 bytes for each operand, a
number or an address. Only ``encode``, which writes the row, and ``Kernel``, which reads it, know where an operand is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partialmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels.ir import Function

SLOTS = 26  # slots of 8 bytes in a row; the first two are the function and the barrier
FUNCTION, BARRIER, HEAD = range(3)
PARAMETERS = (
    ("ptr", "row"),
    ("ptr", "arena"),
    ("ptr", "call"),
    ("i64", "chunk"),
    ("i64", "thread"),
    ("i64", "threads"),
)

Operands = Mapping[str, int | NDArray[np.generic]]


@dataclass(frozen=True)
class Variant(ABC):
    """A kernel: its fields are fixed when it is compiled; everything else that distinguishes layers is an operand."""

    operands: ClassVar[tuple[str, ...]]
    lanes: int

    @property
    def name(self) -> str:
        """The name of the compiled function."""
        return "_".join([type(self).__name__.lower(), *map(str, astuple(self))])

    def code(self) -> str:
        """Return the LLVM code of the function."""
        f = Kernel(self)
        self._write(f)
        f.give()
        return f.text()

    @abstractmethod
    def _write(self, f: "Kernel") -> None:
        """Write the code of the kernel."""

    def encode(self, address: int, operands: Operands, *, barrier: bool) -> NDArray[np.int64]:
        """Return the row of a kernel compiled to ``address``; the arrays must live as long as the row."""
        row = np.zeros(SLOTS, dtype=np.int64)
        row[FUNCTION], row[BARRIER] = address, barrier
        for slot, value in operands.items():
            row[HEAD + self.operands.index(slot)] = value if isinstance(value, int) else value.ctypes.data
        return row


class Kernel(Function):
    """A function with the common signature, whose operands have names."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(variant.name, PARAMETERS)
        self.lanes = variant.lanes
        self.vectors = Vectors(self, variant.lanes)
        self.kind = self.vectors.kind
        self._operands = variant.operands

    def number(self, slot: str) -> str:
        """Load an operand as i64."""
        return self.load("i64", self._slot(slot))

    def numbers(self, *slots: str) -> list[str]:
        """Load several operands as i64."""
        return [self.number(slot) for slot in slots]

    def pointer(self, slot: str) -> str:
        """Load an operand as an address."""
        return self.load("ptr", self._slot(slot))

    def buffer(self, slot: str) -> str:
        """Load an operand as a place in the arena."""
        return self.at("%arena", self.number(slot))

    def share(self, count: str) -> tuple[str, str]:
        """Return this thread's part of range(count)."""
        start = self.op(f"sdiv i64 {self.mul(count, '%thread')}, %threads")
        stop = self.op(f"sdiv i64 {self.mul(count, self.add('%thread', 1))}, %threads")
        return start, stop

    def part(self) -> str:
        """Return this thread's row in a table of ranges; the first row is for a single thread."""
        alone = self.op("icmp eq i64 %threads, 1")
        return self.op(f"select i1 {alone}, i64 0, i64 {self.add('%thread', 1)}")

    def mask(self, pointer: str) -> str:
        """Load 16 bits and return one for each lane."""
        bits = self.load("i16", pointer)
        bits = bits if self.lanes == 16 else self.op(f"trunc i16 {bits} to i{self.lanes}")
        return self.op(f"bitcast i{self.lanes} {bits} to <{self.lanes} x i1>")

    def masked_load(self, pointer: str, mask: str) -> str:
        """Load the lanes where ``mask`` is 1; the others are zero, and their memory is not touched."""
        v = self.lanes
        return self.op(
            f"call {self.kind} @llvm.masked.load.v{v}f32.p0(ptr {pointer}, i32 4, <{v} x i1> {mask},"
            f" {self.kind} zeroinitializer)"
        )

    def masked_store(self, value: str, pointer: str, mask: str) -> None:
        """Store the lanes of ``value`` where ``mask`` is 1.

        Most masks are full. The jump around the masked store, which takes ten times as long on some CPUs, is predicted.
        """
        v = self.lanes
        full = self.op(f"icmp eq i{v} {self.op(f'bitcast <{v} x i1> {mask} to i{v}')}, -1")
        with self.when(full):
            self.store(self.kind, value, pointer)
        with self.when(self.op(f"xor i1 {full}, true")):
            self.do(
                f"call void @llvm.masked.store.v{v}f32.p0({self.kind} {value}, ptr {pointer}, i32 4, <{v} x i1> {mask})"
            )

    def gather(self, pointer: str, numbers: str) -> str:
        """Load floats by their numbers, a vector of integers; where a number is negative, the result is zero."""
        v = self.lanes
        each = self.op(f"getelementptr float, ptr {pointer}, {self.vectors.integers} {numbers}")
        there = self.op(f"icmp sge {self.vectors.integers} {numbers}, zeroinitializer")
        return self.op(
            f"call {self.kind} @llvm.masked.gather.v{v}f32.v{v}p0(<{v} x ptr> {each}, i32 4, <{v} x i1> {there},"
            f" {self.kind} zeroinitializer)"
        )

    @contextmanager
    def row_vectors(self, width: str, *, ragged: bool) -> Iterator[tuple[str, Callable[[str, str], None]]]:
        """Loop over the vectors of a row of floats; yields the offset in bytes, and a function to store a vector there.

        A ``ragged`` row may end inside a vector; memory beyond its end is not written.
        """
        with self.loop(0, width, self.lanes) as loop:
            offset = self.mul(loop.index, 4)
            if not ragged:
                yield offset, lambda value, pointer: self.store(self.kind, value, pointer)
                return
            mask = self.first_lanes(self.op(f"sub i64 {width}, {loop.index}"))
            yield offset, lambda value, pointer: self.masked_store(value, pointer, mask)

    def first_lanes(self, count: str) -> str:
        """Return a mask of the first ``count`` lanes; more than there are means all."""
        left = self.op(f"trunc i64 {count} to i32")
        integers = self.vectors.integers
        one = self.op(f"insertelement {integers} poison, i32 {left}, i64 0")
        limit = self.op(f"shufflevector {integers} {one}, {integers} poison, {integers} zeroinitializer")
        lanes = ", ".join(f"i32 {k}" for k in range(self.lanes))
        return self.op(f"icmp slt {integers} <{lanes}>, {limit}")

    def _slot(self, slot: str) -> str:
        return self.at("%row", 8 * (HEAD + self._operands.index(slot)))


class Vectors:
    """Arithmetic on vectors of ``lanes`` floats inside a function."""

    def __init__(self, function: Function, lanes: int) -> None:
        self.f = function
        self.lanes = lanes
        self.kind = f"<{lanes} x float>"
        self.integers = f"<{lanes} x i32>"

    def constant(self, value: float) -> str:
        """Return ``value`` in all lanes, rounded to float32."""
        return self.f.splat(self.lanes, self.f.single(value))

    def fma(self, a: str, b: str, c: str) -> str:
        """Return a·b + c, rounded once if the CPU supports it."""
        v = self.kind
        return self.f.op(f"call {v} @llvm.fmuladd.v{self.lanes}f32({v} {a}, {v} {b}, {v} {c})")

    def _all(self, number: int) -> str:
        """Return the literal of a vector of integers."""
        return f"<{', '.join([f'i32 {number}'] * self.lanes)}>"

    def _two(self, operation: str, a: str, b: str) -> str:
        return self.f.op(f"{operation} {self.kind} {a}, {b}")

    add = partialmethod(_two, "fadd")  # a + b
    sub = partialmethod(_two, "fsub")  # a − b
    mul = partialmethod(_two, "fmul")  # a · b
    div = partialmethod(_two, "fdiv")  # a / b

    def absolute(self, a: str) -> str:
        """Return |a|."""
        return self.f.op(f"call {self.kind} @llvm.fabs.v{self.lanes}f32({self.kind} {a})")

    def sqrt(self, a: str) -> str:
        """Return √a."""
        return self.f.op(f"call {self.kind} @llvm.sqrt.v{self.lanes}f32({self.kind} {a})")

    def sum(self, a: str) -> str:
        """Return the sum of all lanes, in any order."""
        return self.f.op(f"call reassoc float @llvm.vector.reduce.fadd.v{self.lanes}f32(float 0.0, {self.kind} {a})")

    def rotated(self, a: str, shift: int) -> str:
        """Return the lanes of a moved by ``shift``; those at the end begin again at the front."""
        lanes = ", ".join(f"i32 {(k + shift) % self.lanes}" for k in range(self.lanes))
        return self.f.op(f"shufflevector {self.kind} {a}, {self.kind} poison, {self.integers} <{lanes}>")

    def where(self, comparison: str, a: str, b: str, yes: str, no: str) -> str:
        """Return, lane by lane, ``yes`` where the comparison of a and b (``olt``, …) holds, otherwise ``no``."""
        mask = self.f.op(f"fcmp {comparison} {self.kind} {a}, {b}")
        return self.f.op(f"select <{self.lanes} x i1> {mask}, {self.kind} {yes}, {self.kind} {no}")

    def clamp(self, v: str, low: str, high: str) -> str:
        """Return min(max(v, low), high); NaN stays NaN."""
        v = self.where("olt", v, low, low, v)
        return self.where("ogt", v, high, high, v)

    def polynomial(self, x: str, coefficients: list[float]) -> str:
        """Return c₀xⁿ + … + cₙ by Horner's rule."""
        value = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.fma(value, x, self.constant(coefficient))
        return value

    def log(self, x: str) -> str:
        """Return the natural logarithm of positive normal numbers to about one unit in the last place; NaN stays NaN.

        x = m·2ⁿ with √½ ≤ m < √2, n from its exponent bits, and log(m) by a polynomial (Cephes).
        """
        i = self.integers
        bits = self.f.op(f"bitcast {self.kind} {x} to {i}")
        exponent = self.f.op(f"sub {i} {self.f.op(f'lshr {i} {bits}, {self._all(23)}')}, {self._all(126)}")
        n = self.f.op(f"sitofp {i} {exponent} to {self.kind}")
        fraction = self.f.op(f"or {i} {self.f.op(f'and {i} {bits}, {self._all(0x7FFFFF)}')}, {self._all(0x3F000000)}")
        m = self.f.op(f"bitcast {i} {fraction} to {self.kind}")  # from ½ to 1
        one, root = self.constant(1.0), self.constant(0.5**0.5)
        n = self.where("olt", m, root, self.sub(n, one), n)
        r = self.sub(self.where("olt", m, root, self.add(m, m), m), one)
        square = self.mul(r, r)
        coefficients = [
            7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
            -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
        ]  # fmt: skip
        p = self.mul(self.mul(self.polynomial(r, coefficients), r), square)
        p = self.fma(n, self.constant(-2.12194440e-4), p)
        p = self.fma(square, self.constant(-0.5), p)
        result = self.fma(n, self.constant(0.693359375), self.add(r, p))
        return self.where("uno", x, x, x, result)

    def exp(self, x: str) -> str:
        """Return the exponential to about one unit in the last place, for |x| ≤ 87; clamped beyond.

        x = n·ln 2 + r with |r| ≤ ln 2 / 2, exp(r) by a polynomial (Cephes), and 2ⁿ by its exponent bits.
        """
        i = self.integers
        x = self.clamp(x, self.constant(-87.0), self.constant(88.0))
        magic = self.constant(12582912.0)  # 1.5·2²³: adding it rounds to an integer, in the lowest bits
        shifted = self.fma(x, self.constant(1.44269504088896341), magic)
        n = self.sub(shifted, magic)
        r = self.fma(n, self.constant(-0.693359375), x)
        r = self.fma(n, self.constant(2.12194440e-4), r)
        coefficients = [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5]
        p = self.polynomial(r, coefficients)
        p = self.add(self.fma(p, self.mul(r, r), r), self.constant(1.0))
        bits = self.f.op(f"bitcast {self.kind} {shifted} to {i}")
        base = self.f.op(f"bitcast {self.kind} {magic} to {i}")
        whole = self.f.op(f"shl {i} {self.f.op(f'sub {i} {bits}, {base}')}, {self._all(23)}")
        scaled = self.f.op(f"add {i} {whole}, {self.f.op(f'bitcast {self.kind} {p} to {i}')}")
        return self.f.op(f"bitcast {i} {scaled} to {self.kind}")
