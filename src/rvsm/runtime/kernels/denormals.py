"""Numbers below 1.2e-38 as zeros: arithmetic with them takes a hundred times as long, and they mean nothing here.

Tails of GELU, SiLU and sigmoid are full of them. A register of the CPU says whether they are flushed; each thread has
its own, sets it for the time of a performance, and leaves it as it was.
"""

import platform
from typing import Protocol

from rvsm.runtime.ir import Function


class Mode(Protocol):
    """How a kind of CPU is told."""

    declarations: str

    def flush(self, f: Function) -> str:
        """Write what makes denormal numbers zero, and return the mode before."""

    def restore(self, f: Function, before: str) -> None:
        """Write what brings the mode back."""


class X86:
    """The control register of SSE and AVX: "flush to zero" for results, "denormals are zero" for operands."""

    declarations = "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)"
    FLUSH, ARE_ZERO = 0x8000, 0x0040

    def flush(self, f: Function) -> str:
        """Write what makes denormal numbers zero, and return the mode before."""
        before, flushed = (f.op("alloca i32, align 4") for _ in range(2))
        f.do(f"call void @llvm.x86.sse.stmxcsr(ptr {before})")
        f.store("i32", f.op(f"or i32 {f.load('i32', before)}, {self.FLUSH | self.ARE_ZERO}"), flushed)
        self.restore(f, flushed)
        return before

    def restore(self, f: Function, before: str) -> None:
        """Write what brings the mode back."""
        f.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {before})")


class Arm64:
    """The floating-point control register, whose bit 24 flushes operands and results."""

    declarations = "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)"
    FLUSH = 1 << 24

    def flush(self, f: Function) -> str:
        """Write what makes denormal numbers zero, and return the mode before."""
        before = f.op("call i64 @llvm.aarch64.get.fpcr()")
        self.restore(f, f.op(f"or i64 {before}, {self.FLUSH}"))
        return before

    def restore(self, f: Function, before: str) -> None:
        """Write what brings the mode back."""
        f.do(f"call void @llvm.aarch64.set.fpcr(i64 {before})")


class Unknown:
    """A CPU that we cannot tell: denormal numbers stay, and are slow."""

    declarations = ""

    def flush(self, f: Function) -> str:
        """Write nothing."""
        return ""

    def restore(self, f: Function, before: str) -> None:
        """Write nothing."""


def mode() -> Mode:
    """Return how this CPU is told."""
    kind = platform.machine().lower()
    if kind in ("x86_64", "amd64", "i386", "i686", "x86"):
        return X86()
    return Arm64() if kind in ("aarch64", "arm64") else Unknown()
