"""A stage: a schedule as machine code, with memory for its calls; it runs on one thread or on the team."""

import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.execute.team import team
from rvsm.runtime.kernels import player
from rvsm.runtime.kernels.jit import compile_functions
from rvsm.runtime.schedule.layout import aligned
from rvsm.runtime.schedule.scheduler import Schedule
from rvsm.runtime.schedule.step import least_seconds

Floats = NDArray[np.float32]
LONG = 0.25  # seconds: the most time to spend on measuring
PATIENCE = 1.0  # seconds after which native code returns to Python, so that an interrupt can be raised
LONG_STEP = 30e-6  # seconds of a step on each thread: then a barrier costs little, and sharing helps the caches
QUICK = 50e-6  # seconds: with less work than this for each thread, helpers are not woken


class Stage:
    """The compiled kernels of a schedule, the table that the player reads, and memory for calls."""

    def __init__(self, schedule: Schedule, threads: int) -> None:
        self.schedule = schedule
        self.threads = threads
        self.chunk_seconds = 0.0  # seconds of one chunk on one thread, once measured
        addresses = compile_functions(step.variant for step in schedule.steps)
        self._table = np.stack([step.row(addresses) for step in schedule.steps])
        self._play = _play_function()
        self._yield = _yield_address()
        self._free: list[NDArray[np.uint8]] = []

    def perform(
        self, inputs: Sequence[Floats], outputs: Sequence[Floats], images: range, *, alone: bool = False
    ) -> None:
        """Compute some ``images``; ``inputs`` and ``outputs`` hold all images of the call."""
        quick = self._chunks(images) * self.chunk_seconds < QUICK * self.threads
        threads = 1 if alone or self.threads == 1 or quick else self.threads
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
        shared = long or (threads > 1 and (uneven or self.chunk_seconds > LONG_STEP * threads * steps))
        arenas = self._take(1 if shared else min(threads, chunks))
        threads = threads if shared else len(arenas)
        try:
            call = self._call(inputs, outputs, images, threads=threads, shared=shared, arenas=arenas)
            for first, last in [(k, k + 1) for k in range(steps)] if long else [(0, steps)]:
                play = partial(self._play, call[0].ctypes.data, first, last)
                if threads == 1:
                    play(0)
                else:
                    team().run(play, threads)
            if call[0][player.PROBLEM]:
                raise IndexError(
                    f"a number in the input must be from 0 to {call[0][player.PROBLEM] - 1}, a row of a table"
                )
        finally:
            self._free += arenas

    def times(self, inputs: Sequence[Floats], outputs: Sequence[Floats], repeats: int = 3) -> list[float]:
        """Return the seconds of each step for the chunk in these arrays, on this thread: the minimum of several."""
        arenas = self._take(1)
        call = self._call(inputs, outputs, range(self.schedule.images), threads=1, shared=True, arenas=arenas)
        best = [float("inf")] * len(self.schedule.steps)
        for _ in range(repeats if self.schedule.seconds < LONG else 1):
            for k in range(len(best)):
                begin = time.perf_counter()
                self._play(call[0].ctypes.data, k, k + 1, 0)
                best[k] = min(best[k], time.perf_counter() - begin)
        self._free += arenas
        return best

    def measure(self, inputs: Sequence[Floats], outputs: Sequence[Floats]) -> None:
        """Time the chunk in these arrays on this thread and store the time; for large networks it is only estimated."""
        self.chunk_seconds = self.schedule.seconds
        if self.schedule.seconds <= LONG:
            run = partial(self.perform, inputs, outputs, range(self.schedule.images), alone=True)
            self.chunk_seconds = least_seconds(run, limit=LONG)

    def _take(self, count: int) -> list[NDArray[np.uint8]]:
        taken: list[NDArray[np.uint8]] = []
        with suppress(IndexError):  # pop and += are atomic, so threads need no lock
            while len(taken) < count:
                taken.append(self._free.pop())
        return taken + [aligned(self.schedule.arena_bytes) for _ in range(count - len(taken))]

    def _call(
        self, inputs: Sequence[Floats], outputs: Sequence[Floats], images: range, *, threads: int, shared: bool,
        arenas: Sequence[NDArray[np.uint8]],
    ) -> list[NDArray[np.generic]]:  # fmt: skip
        """Return the description of a call, and the tables that it points to."""
        call = aligned(8 * player.CALL_SLOTS).view(np.int64)
        memory = np.array([arena.ctypes.data for arena in arenas], dtype=np.int64)
        sources, targets = (
            np.array([a.ctypes.data + images.start * a[0].nbytes for a in arrays], dtype=np.int64)
            for arrays in (inputs, outputs)
        )
        call[player.OPERATIONS] = self._table.ctypes.data
        call[player.ARENAS] = memory.ctypes.data
        call[player.INPUTS], call[player.OUTPUTS] = sources.ctypes.data, targets.ctypes.data
        call[player.BATCH], call[player.CHUNKS] = len(images), self._chunks(images)
        call[player.THREADS], call[player.SHARED] = threads, shared
        call[player.YIELD] = self._yield
        return [call, memory, sources, targets]


def _play_function() -> Callable[[int, int, int, int], None]:
    address = compile_functions([player.Player(player.mode())])["play"]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)


def _yield_address() -> int:
    """Return the system function that yields the rest of a time slice to other threads."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    return ctypes.cast(function, ctypes.c_void_p).value or 0
