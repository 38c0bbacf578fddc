"""The player: runs the operations of a program, for every chunk of images, without Python.

Each thread enters once. Either the threads share every operation of every chunk and meet at a barrier after it, or each
thread takes whole chunks and has its own arena. The barrier counts arrivals, spins for a while, and then yields.

In the player, numbers below 1.2e-38 are treated as zero. Arithmetic with them takes a hundred times as long, and they
are negligible here. The tails of GELU, SiLU and sigmoid are full of them. A CPU register controls whether they are
flushed; each thread has its own register, sets it, and restores it at the end.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rvsm.runtime.kernels.ir import Function
from rvsm.runtime.kernels.kernel import BARRIER, FUNCTION, PARAMETERS, SLOTS

# Slots of a call, 8 bytes each; the two counters, which threads change, have their own cache lines.
OPERATIONS, ARENAS, INPUTS, OUTPUTS, BATCH, CHUNKS, THREADS, SHARED, YIELD, PROBLEM = range(10)
ARRIVED, TAKEN = 16, 24
CALL_SLOTS = 32
SPINS = 4000


class Mode:
    """How a type of CPU flushes denormal numbers to zero; on other CPUs they stay, and are slow."""

    declarations = ""

    def flush(self, f: Function) -> str:
        """Write code that makes denormal numbers zero, and return the previous mode."""
        return ""

    def restore(self, f: Function, before: str) -> None:
        """Write code that restores the mode."""


class X86(Mode):
    """The control register of SSE and AVX: "flush to zero" for results, "denormals are zero" for operands."""

    declarations = "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)"
    FLUSH, ARE_ZERO = 0x8000, 0x0040

    def flush(self, f: Function) -> str:
        """Write code that makes denormal numbers zero, and return the previous mode."""
        before, flushed = (f.op("alloca i32, align 4") for _ in range(2))
        f.do(f"call void @llvm.x86.sse.stmxcsr(ptr {before})")
        f.store("i32", f.op(f"or i32 {f.load('i32', before)}, {self.FLUSH | self.ARE_ZERO}"), flushed)
        self.restore(f, flushed)
        return before

    def restore(self, f: Function, before: str) -> None:
        """Write code that restores the mode."""
        f.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {before})")


class Arm64(Mode):
    """The floating-point control register, whose bit 24 flushes operands and results."""

    declarations = "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)"
    FLUSH = 1 << 24

    def flush(self, f: Function) -> str:
        """Write code that makes denormal numbers zero, and return the previous mode."""
        before = f.op("call i64 @llvm.aarch64.get.fpcr()")
        self.restore(f, f.op(f"or i64 {before}, {self.FLUSH}"))
        return before

    def restore(self, f: Function, before: str) -> None:
        """Write code that restores the mode."""
        f.do(f"call void @llvm.aarch64.set.fpcr(i64 {before})")


def mode() -> Mode:
    """Return the method for this CPU."""
    kind = platform.machine().lower()
    if kind in ("x86_64", "amd64", "i386", "i686", "x86"):
        return X86()
    return Arm64() if kind in ("aarch64", "arm64") else Mode()


@dataclass(frozen=True)
class Player:
    """The function ``play(call, first operation, last operation, thread)``, with its barrier."""

    mode: Mode
    name: str = "play"

    def code(self) -> str:
        """Return the LLVM code of both functions."""
        return f"{meet()}\n\n{play(self.mode)}"


def play(mode: Mode) -> str:
    """Return the LLVM code of the player itself."""
    f = Function("play", [("ptr", "call"), ("i64", "first"), ("i64", "last"), ("i64", "thread")])
    before = mode.flush(f)
    operations, arenas = (f.load("ptr", f.at("%call", 8 * slot)) for slot in (OPERATIONS, ARENAS))
    chunks, threads, shared = (f.load("i64", f.at("%call", 8 * slot)) for slot in (CHUNKS, THREADS, SHARED))
    common = f.load("ptr", arenas)
    together = f.op(f"icmp ne i64 {shared}, 0")
    with f.when(together), f.loop(0, chunks) as chunk, f.loop("%first", "%last") as k:
        operation = f.at(operations, f.mul(k.index, 8 * SLOTS))
        _perform(f, operation, common, chunk=chunk.index, thread="%thread", threads=threads)
        with f.when(f.op(f"icmp ne i64 {f.load('i64', f.at(operation, 8 * BARRIER))}, 0")):
            f.do(f"call void @meet(ptr %call, i64 {threads})")
    with f.when(f.op(f"xor i1 {together}, true")):
        own = f.load("ptr", f.at(arenas, f.mul("%thread", 8)))
        with f.loop(0, chunks):  # an upper bound; the counter determines which chunk
            taken = f.op(f"atomicrmw add ptr {f.at('%call', 8 * TAKEN)}, i64 1 monotonic")
            with f.when(f.op(f"icmp slt i64 {taken}, {chunks}")), f.loop("%first", "%last") as k:
                operation = f.at(operations, f.mul(k.index, 8 * SLOTS))
                _perform(f, operation, own, chunk=taken, thread="0", threads="1")
    mode.restore(f, before)
    f.give()
    return f"{mode.declarations}\n\n{f.text()}"


def meet() -> str:
    """Return the barrier: waits until the arrivals are a multiple of the number of threads."""
    f = Function("meet", [("ptr", "call"), ("i64", "threads")])
    counter = f.at("%call", 8 * ARRIVED)
    arrived = f.op(f"atomicrmw add ptr {counter}, i64 1 acq_rel")
    rounds = f.op(f"sdiv i64 {arrived}, %threads")
    goal = f.mul(f.add(rounds, 1), "%threads")
    give_way = f.load("ptr", f.at("%call", 8 * YIELD))
    with spinning(f, give_way):
        seen = f.op(f"load atomic i64, ptr {counter} acquire, align 8")
        with f.when(f.op(f"icmp sge i64 {seen}, {goal}")):
            f.leave("ret void")
    f.give()
    return f.text()


@contextmanager
def spinning(f: Function, give_way: str) -> Iterator[None]:
    """Write a loop around a look at memory, which ends the function; after many looks, others may run in between."""
    with f.loop(0, 1 << 62) as spin:
        yield
        with f.when(f.op(f"icmp sgt i64 {spin.index}, {SPINS}")):
            f.op(f"call i32 {give_way}()")


def _perform(f: Function, operation: str, arena: str, *, chunk: str, thread: str, threads: str) -> None:
    function = f.load("ptr", f.at(operation, 8 * FUNCTION))
    kinds = ", ".join(kind for kind, _ in PARAMETERS)
    arguments = f"ptr {operation}, ptr {arena}, ptr %call, i64 {chunk}, i64 {thread}, i64 {threads}"
    f.do(f"call void ({kinds}) {function}({arguments})")
