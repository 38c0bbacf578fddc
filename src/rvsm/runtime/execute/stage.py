"""A stage: a schedule as machine code, with memory for its calls; it runs on one thread or on the team."""

import struct
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.execute.team import PLAYER, function, system, team
from rvsm.runtime.kernels import player
from rvsm.runtime.kernels.jit import compile_functions
from rvsm.runtime.schedule.layout import aligned
from rvsm.runtime.schedule.scheduler import Schedule
from rvsm.runtime.schedule.step import least_seconds

Floats = NDArray[np.float32]
LONG = 0.25  # seconds: the most time to spend on measuring
PATIENCE = 1.0  # seconds after which native code returns to Python, so that an interrupt can be raised
LONG_STEP = 30e-6  # seconds of a step on each thread: then a barrier costs little, and sharing may help the caches
TRIES = 3  # calls in which threads share each chunk, and as many in which each has its own, to find out what is faster
QUICK = 20e-6  # seconds: with less work than this for each thread, helpers are not asked


class Desk:
    """Memory for one call at a time: what the player reads about the call, and arenas for its threads.

    Desks are used again and again: a call of a small network takes a few microseconds, and making a desk takes more.
    """

    def __init__(self, inputs: int, outputs: int, threads: int) -> None:
        self.arenas: list[NDArray[np.uint8]] = []
        self._places = [0] * threads  # of the arenas
        slots = player.CALL_SLOTS + threads + inputs + outputs
        self._memory = aligned(8 * slots)
        self._slots = memoryview(self._memory.data).cast("q")
        self.address: int = self._memory.ctypes.data
        first = self.address + 8 * player.CALL_SLOTS
        self._lists = first, first + 8 * threads, first + 8 * (threads + inputs)  # of arenas, inputs and outputs
        self._pack = struct.Struct(f"{slots}q").pack_into
        self._zeros = [0] * (player.CALL_SLOTS - player.PROBLEM)  # no problem yet, and counters

    def lay(self, count: int, size: int) -> None:
        """Have at least ``count`` arenas of ``size`` bytes."""
        for k in range(len(self.arenas), count):
            self.arenas.append(aligned(size))
            self._places[k] = self.arenas[k].ctypes.data

    def write(self, table: int, inputs: list[int], outputs: list[int], about: tuple[int, ...]) -> None:
        """Describe a call: the addresses of the steps and of the arrays, and the slots from ``BATCH`` on."""
        self._pack(self._slots, 0, table, *self._lists, *about, *self._zeros, *self._places, *inputs, *outputs)

    def check(self) -> None:
        """Raise IndexError if a kernel has reported an index beyond the rows of a table."""
        if rows := self._slots[player.PROBLEM]:
            self._slots[player.PROBLEM] = 0
            raise IndexError(f"a number in the input must be from 0 to {rows - 1}, a row of a table")


class Stage:
    """The compiled kernels of a schedule, the table that the player reads, and memory for calls."""

    def __init__(self, schedule: Schedule, threads: int) -> None:
        self.schedule = schedule
        self.threads = threads
        self.chunk_seconds = 0.0  # seconds of one chunk on one thread, once measured
        addresses = compile_functions(step.variant for step in schedule.steps)
        self._table = np.stack([step.row(addresses) for step in schedule.steps])
        self._table_address = self._table.ctypes.data
        self._play = function(PLAYER, 4)
        self._yield = system("yield")
        self._tried: dict[bool, list[float]] = {True: [], False: []}  # seconds of a chunk: shared, and not
        self._free: list[Desk] = []
        self._places: list[tuple[Desk, list[Floats], list[Floats]]] = []

    def is_quick(self, chunks: int = 1) -> bool:
        """Return whether some chunks are computed before helpers would begin; then the call itself counts as well."""
        return chunks * self.chunk_seconds < QUICK * self.threads

    def quickly(self, inputs: Sequence[Floats], outputs: Sequence[tuple[int, ...]]) -> list[Floats]:
        """Return the outputs of one image, of these sizes, computed on this thread in arrays that are kept.

        The call is described once. Copying small arrays takes less time than finding out where they are.
        """
        try:
            desk, sources, targets = self._places.pop()  # atomic, as is append, so threads need no lock
        except IndexError:
            sources = [np.empty((1, *x.shape[1:]), np.float32) for x in inputs]
            targets = [np.empty((1, *sizes), np.float32) for sizes in outputs]
            desk = self._desk(sources, targets, range(1), threads=1, shared=True)
        for source, x in zip(sources, inputs, strict=True):
            source[...] = x
        self._play(desk.address, 0, len(self._table), 0)
        results = [target.copy() for target in targets]
        self._places.append((desk, sources, targets))
        desk.check()
        return results

    def perform(
        self, inputs: Sequence[Floats], outputs: Sequence[Floats], images: range, *, alone: bool = False
    ) -> None:
        """Compute some ``images``; ``inputs`` and ``outputs`` hold all images of the call."""
        threads = 1 if alone or self.threads == 1 or self.is_quick(self._chunks(images)) else self.threads
        helped = threads > 1 and team().acquire()
        size = self.schedule.images * self._chunks_at_once(threads)
        try:
            for k in range(0, len(images), size):  # interrupts are raised between iterations
                self._perform(inputs, outputs, images[k : k + size], threads if helped else 1)
        finally:
            if helped:
                team().release()

    def _chunks(self, images: range) -> int:
        return -(-len(images) // self.schedule.images)

    def _chunks_at_once(self, threads: int) -> int:
        """Return how many chunks to compute before interrupts are handled; 0 seconds means that the time is unknown."""
        return max(1, int(PATIENCE / max(self.chunk_seconds, 1e-9))) * threads if self.chunk_seconds < PATIENCE else 1

    def _perform(self, inputs: Sequence[Floats], outputs: Sequence[Floats], images: range, threads: int) -> None:
        chunks = self._chunks(images)
        uneven = chunks % threads != 0 and chunks < 4 * threads
        long = self.chunk_seconds >= PATIENCE  # then all threads work on one step at a time
        steps = len(self.schedule.steps)
        either = threads > 1 and not long and not uneven and self.chunk_seconds > LONG_STEP * threads * steps
        shared = self._sharing_is_faster() if either else long or (threads > 1 and uneven)
        threads = threads if shared else min(threads, chunks)
        begin = time.perf_counter()
        desk = self._desk(inputs, outputs, images, threads=threads, shared=shared)
        try:
            for first, last in [(k, k + 1) for k in range(steps)] if long else [(0, steps)]:
                if threads == 1:
                    self._play(desk.address, first, last, 0)
                else:
                    team().play(desk.address, first, last, threads)
            desk.check()
        finally:
            self._free.append(desk)
        if either and len(self._tried[shared]) < TRIES:
            self._tried[shared].append((time.perf_counter() - begin) / chunks)

    def _sharing_is_faster(self) -> bool:
        """Return whether all threads should work on one chunk at a time; the first calls try both in turn.

        The results are the same. What is faster depends on the caches of the CPU and on the size of the maps.
        """
        shared, apart = self._tried[True], self._tried[False]
        if min(len(shared), len(apart)) < TRIES:
            return len(shared) <= len(apart)
        return min(shared) <= min(apart)

    def times(self, inputs: Sequence[Floats], outputs: Sequence[Floats], repeats: int = 3) -> list[float]:
        """Return the seconds of each step for the chunk in these arrays, on this thread: the minimum of several."""
        desk = self._desk(inputs, outputs, range(self.schedule.images), threads=1, shared=True)
        best = [float("inf")] * len(self.schedule.steps)
        for _ in range(1 if self.is_long else repeats):
            for k in range(len(best)):
                begin = time.perf_counter()
                self._play(desk.address, k, k + 1, 0)
                best[k] = min(best[k], time.perf_counter() - begin)
        self._free.append(desk)
        return best

    def measure(self, inputs: Sequence[Floats], outputs: Sequence[Floats]) -> None:
        """Time the chunk in these arrays on this thread and store the time; for large networks it is only estimated.

        The first run fills memory that was never used before, and caches; the time is that of later ones.
        """
        self.chunk_seconds = self.schedule.seconds
        if not self.is_long:
            run = partial(self.perform, inputs, outputs, range(self.schedule.images), alone=True)
            run()
            self.chunk_seconds = least_seconds(run, limit=LONG)

    @property
    def is_long(self) -> bool:
        """Whether measuring the stage would take too long."""
        return self.schedule.seconds > LONG

    def chunks_of(self, other: "Stage") -> float:
        """Return how many chunks of another stage take as long as one of this; estimates are compared with each other.

        Estimates may be wrong by a factor of two, but mostly both by the same one.
        """
        if self.is_long or other.is_long:
            return self.schedule.seconds / max(other.schedule.seconds, 1e-9)
        return self.chunk_seconds / max(other.chunk_seconds, 1e-9)

    def _desk(
        self, inputs: Sequence[Floats], outputs: Sequence[Floats], images: range, *, threads: int, shared: bool
    ) -> Desk:
        """Return memory for a call in which the call is described; it belongs to the caller until it is appended."""
        try:
            desk = self._free.pop()  # atomic, as is append, so threads need no lock
        except IndexError:
            desk = Desk(len(inputs), len(outputs), self.threads)
        desk.lay(1 if shared else threads, self.schedule.arena_bytes)
        about = len(images), self._chunks(images), threads, shared, self._yield
        sources, targets = ([_address(a, images.start) for a in arrays] for arrays in (inputs, outputs))
        desk.write(self._table_address, sources, targets, about)
        return desk


def _address(array: Floats, image: int) -> int:
    """Return where an image of a contiguous array begins."""
    start: int = array.ctypes.data
    return start + image * (array.nbytes // len(array)) if image else start
