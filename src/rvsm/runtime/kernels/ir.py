"""Source code of LLVM functions: names for values, loops that carry values in registers, vectors.

A value is its name (``%12``) or a literal (``7``). Types are LLVM's: ``i64``, ``ptr``, ``float``, ``<16 x float>``.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Loop:
    """``for index in range(…)`` with carried values: the body sets ``after``, with an entry for each of ``values``."""

    def __init__(self, index: str, values: list[str]) -> None:
        self.index = index
        self.values = values
        self.after = values


class Function:
    """Builds one LLVM function.

    >>> f = Function("twice", [("i64", "n")], result="i64")
    >>> f.give(f.op("add i64 %n, %n"))
    >>> print(f.text())
    define i64 @twice(i64 %n) {
    entry:
      %1 = add i64 %n, %n
      ret i64 %1
    }
    """

    def __init__(self, name: str, parameters: Sequence[tuple[str, str]], *, result: str = "void") -> None:
        self.name = name
        self.result = result
        self._parameters = ", ".join(f"{kind} %{parameter}" for kind, parameter in parameters)
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"

    def text(self) -> str:
        """Return the whole function."""
        body = "\n".join(self._lines)
        return f"define {self.result} @{self.name}({self._parameters}) {{\nentry:\n{body}\n}}"

    def op(self, instruction: str) -> str:
        """Write an instruction and return the name of its value."""
        name = f"%{self._next()}"
        self._lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Write an instruction that has no value."""
        self._lines.append(f"  {instruction}")

    def give(self, value: str | None = None) -> None:
        """Return from the function."""
        self.do("ret void" if value is None else f"ret {self.result} {value}")

    @contextmanager
    def loop(
        self, start: str | int, stop: str | int, step: str | int = 1, *, carry: Sequence[tuple[str, str]] = ()
    ) -> Iterator[Loop]:
        """Loop over i64; ``carry`` has the type and the first value of each carried value.

        Inside the loop, ``values`` are the current values; after it, the final ones.
        """
        n = self._next()
        head, body, latch, end = f"head{n}", f"body{n}", f"latch{n}", f"end{n}"
        before = self._block
        index, following = f"%i{n}", f"%n{n}"
        values = [f"%c{n}.{k}" for k in range(len(carry))]
        loop = Loop(index, values)
        self.do(f"br label %{head}")
        self._open(head)
        self.do(f"{index} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        place = len(self._lines)
        self._lines.extend("" for _ in carry)  # written at the end, when the values of the next iteration have names
        more = self.op(f"icmp slt i64 {index}, {stop}")
        self.do(f"br i1 {more}, label %{body}, label %{end}")
        self._open(body)
        yield loop
        self.do(f"br label %{latch}")
        self._open(latch)
        self.do(f"{following} = add nsw i64 {index}, {step}")
        self.do(f"br label %{head}")
        for k, (kind, first) in enumerate(carry):
            self._lines[place + k] = f"  {values[k]} = phi {kind} [ {first}, %{before} ], [ {loop.after[k]}, %{latch} ]"
        self._open(end)

    def leave(self, instruction: str) -> None:
        """Write an instruction that ends a block; code after it is unreachable."""
        self.do(instruction)
        self._open(f"never{self._next()}")

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Execute the body only if ``condition`` (i1) holds."""
        n = self._next()
        self.do(f"br i1 {condition}, label %then{n}, label %end{n}")
        self._open(f"then{n}")
        yield
        self.do(f"br label %end{n}")
        self._open(f"end{n}")

    @contextmanager
    def unless(self, condition: str, kind: str, values: Sequence[str]) -> Iterator[Loop]:
        """Return ``values`` if ``condition`` (i1) holds; otherwise the values that the body sets as ``after``."""
        n = self._next()
        before = self._block
        choice = Loop("", list(values))
        self.do(f"br i1 {condition}, label %end{n}, label %else{n}")
        self._open(f"else{n}")
        yield choice
        other = self._block
        self.do(f"br label %end{n}")
        self._open(f"end{n}")
        pairs = zip(values, choice.after, strict=True)
        choice.values = [self.op(f"phi {kind} [ {a}, %{before} ], [ {b}, %{other} ]") for a, b in pairs]

    @staticmethod
    def single(value: float) -> str:
        """Return the literal of a float32: LLVM expects the bits of the double with the same value."""
        rounded = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"

    def at(self, pointer: str, *offsets: str | int) -> str:
        """Return ``pointer`` moved by the sum of ``offsets`` bytes."""
        for offset in offsets:
            if offset != 0:
                pointer = self.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        return pointer

    def load(self, kind: str, pointer: str, *, align: int | None = None) -> str:
        """Load a value of type ``kind``; vectors may begin at any multiple of four bytes."""
        align = align or (4 if kind.startswith("<") else None)
        return self.op(f"load {kind}, ptr {pointer}" + (f", align {align}" if align else ""))

    def store(self, kind: str, value: str, pointer: str) -> None:
        """Store a value of type ``kind``."""
        self.do(f"store {kind} {value}, ptr {pointer}" + (", align 4" if kind.startswith("<") else ""))

    def prefetch(self, pointer: str, *, write: bool = False) -> None:
        """Prefetch a cache line."""
        self.do(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {int(write)}, i32 2, i32 1)")

    def splat(self, lanes: int, value: str) -> str:
        """Return a vector with the float ``value`` in all lanes."""
        one = self.op(f"insertelement <{lanes} x float> poison, float {value}, i64 0")
        return self.op(
            f"shufflevector <{lanes} x float> {one}, <{lanes} x float> poison, <{lanes} x i32> zeroinitializer"
        )

    def add(self, a: str | int, b: str | int) -> str:
        """Return a + b, both i64."""
        return self.op(f"add i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        """Return a · b, both i64."""
        return self.op(f"mul i64 {a}, {b}")

    def _open(self, block: str) -> None:
        self._lines.append(f"{block}:")
        self._block = block

    def _next(self) -> int:
        self._count += 1
        return self._count


PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"


def declarations(lanes: int) -> str:
    """Return the declarations of LLVM's functions on vectors."""
    v = f"<{lanes} x float>"
    return "\n".join(
        [
            f"declare {v} @llvm.fmuladd.v{lanes}f32({v}, {v}, {v})",
            f"declare {v} @llvm.fabs.v{lanes}f32({v})",
            f"declare {v} @llvm.sqrt.v{lanes}f32({v})",
            f"declare {v} @llvm.masked.load.v{lanes}f32.p0(ptr, i32, <{lanes} x i1>, {v})",
            f"declare void @llvm.masked.store.v{lanes}f32.p0({v}, ptr, i32, <{lanes} x i1>)",
            f"declare {v} @llvm.masked.gather.v{lanes}f32.v{lanes}p0(<{lanes} x ptr>, i32, <{lanes} x i1>, {v})",
            f"declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {v})",
        ]
    )
