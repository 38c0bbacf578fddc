"""The steps of a schedule, and the rules that turn operations into steps."""

import ctypes
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels.jit import Machine, compile_functions
from rvsm.runtime.kernels.kernel import PARAMETERS, Operands, Variant
from rvsm.runtime.plan.operation import Activation, Operation, Shape
from rvsm.runtime.plan.plan import Weights
from rvsm.runtime.schedule.layout import Buffer, Geometry

AnyOperation = TypeVar("AnyOperation", bound=Operation)
Packs = dict[Hashable, Any]
TYPES = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64}


@dataclass(eq=False)
class Step:
    """A kernel with its operands; with ``meet``, all threads must finish before the next step begins.

    ``operation`` is the operation that it belongs to, and ``note`` describes it in ``explain``.
    """

    variant: Variant
    operands: Operands
    meet: bool = True
    operation: int = -1
    note: str = ""

    def row(self, addresses: dict[str, int]) -> NDArray[np.int64]:
        """Return the row that the player reads, for compiled functions at these addresses."""
        return self.variant.encode(addresses[self.variant.name], self.operands, barrier=self.meet)

    def seconds(self, arena: NDArray[np.uint8]) -> float:
        """Return how long the step takes on this thread alone; the minimum of several runs."""
        addresses = compile_functions([self.variant])
        function = ctypes.CFUNCTYPE(None, *(TYPES[kind] for kind, _ in PARAMETERS))(addresses[self.variant.name])
        row = self.row(addresses)
        return least_seconds(lambda: function(row.ctypes.data, arena.ctypes.data, None, 0, 0, 1))


@dataclass(frozen=True, eq=False)
class Site(Generic[AnyOperation]):
    """An operation with the buffers of its values, its weights, and its own memory, ``scratch``.

    ``choose`` forces one of several kernels; ``arena_bytes`` is the size of the arena for timing them. ``packs`` holds
    what schedules of the same weights have in common, whatever the sizes of the maps; None if there is only one.
    """

    operation: AnyOperation
    sources: tuple[Buffer, ...]
    target: Buffer
    machine: Machine
    threads: int
    weights: Weights | None = None
    bias: NDArray[np.float32] | None = None
    scratch: int = 0
    choose: str | None = None
    arena_bytes: int = 0
    packs: Packs | None = None


@dataclass(frozen=True)
class Extent(Generic[AnyOperation]):
    """The properties of an operation that are known before anything is built: shapes, and the non-zero weights."""

    operation: AnyOperation
    sources: Sequence[Shape]
    shape: Shape
    nonzero: int
    unit: int  # images at each position
    machine: Machine

    @property
    def vectors(self) -> int:
        """The number of vectors in the result."""
        return prod(self.shape) if self.unit > 1 else -(-prod(self.shape) // self.machine.lanes)


@dataclass(frozen=True)
class Cost:
    """The bytes that an operation keeps, the bytes that building it needs, and the seconds of one chunk.

    Bytes are upper bounds. Seconds are rough, on one thread, for a vector of images or a single image.
    """

    kept: int
    passing: int
    seconds: float


Scratch = tuple[object, int]  # the key of its contents, and its bytes


@dataclass(frozen=True)
class Rule:
    """How an operation is scheduled: its steps, their cost, and the scratch memory that they need.

    ``shared`` returns where its result is in the memory of its first source, if it need not be computed at all.
    """

    steps: Callable[[Site[Any]], list[Step]]
    cost: Callable[[Extent[Any]], Cost]
    scratch: Callable[[Site[Any]], Scratch | None] = lambda site: None
    shared: Callable[[Any, Buffer, Geometry], int | None] = lambda operation, source, geometry: None


def least_seconds(action: Callable[[], object], repeats: int = 3, limit: float = 1.0) -> float:
    """Return the shortest time of several runs; no run starts after ``limit`` seconds."""
    times: list[float] = []
    while len(times) < repeats and sum(times) < limit:
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return min(times)


def parameters(activation: Activation) -> NDArray[np.float32]:
    """Return the parameters of an activation for a kernel."""
    return np.array([activation.a, activation.b], dtype=np.float32)
