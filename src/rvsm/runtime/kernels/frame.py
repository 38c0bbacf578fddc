"""What all kernels share: the signature, the named slots of their arguments, the share of a thread."""

from collections.abc import Sequence

from rvsm.runtime.activations import Vectors
from rvsm.runtime.ir import Function

SLOTS = 24  # of 8 bytes in the description of one operation, the first two being the function and the barrier
HEAD = 2
PARAMETERS = (
    ("ptr", "args"),
    ("ptr", "arena"),
    ("ptr", "call"),
    ("i64", "chunk"),
    ("i64", "thread"),
    ("i64", "threads"),
)


class Kernel(Function):
    """A function with the common signature, whose arguments have names."""

    def __init__(self, name: str, slots: Sequence[str], lanes: int) -> None:
        super().__init__(name, PARAMETERS)
        self.slots = tuple(slots)
        self.vectors = Vectors(self, lanes)
        self.kind = self.vectors.kind
        self.lanes = lanes

    def number(self, slot: str) -> str:
        """Load an argument as i64."""
        return self.load("i64", self._slot(slot))

    def pointer(self, slot: str) -> str:
        """Load an argument as an address."""
        return self.load("ptr", self._slot(slot))

    def buffer(self, slot: str) -> str:
        """Load an argument as a place in the arena."""
        return self.at("%arena", self.number(slot))

    def share(self, count: str) -> tuple[str, str]:
        """Return this thread's part of range(count)."""
        start = self.op(f"sdiv i64 {self.mul(count, '%thread')}, %threads")
        stop = self.op(f"sdiv i64 {self.mul(count, self.add('%thread', 1))}, %threads")
        return start, stop

    def part(self) -> str:
        """Return which row of a table of ranges is this thread's: the first is for a thread alone."""
        alone = self.op("icmp eq i64 %threads, 1")
        return self.op(f"select i1 {alone}, i64 0, i64 {self.add('%thread', 1)}")

    def mask(self, pointer: str) -> str:
        """Load 16 bits and return as many of them as there are lanes."""
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
        """Store the lanes of ``value`` where ``mask`` is 1."""
        v = self.lanes
        self.do(
            f"call void @llvm.masked.store.v{v}f32.p0({self.kind} {value}, ptr {pointer}, i32 4, <{v} x i1> {mask})"
        )

    def _slot(self, slot: str) -> str:
        return self.at("%args", 8 * (HEAD + self.slots.index(slot)))
