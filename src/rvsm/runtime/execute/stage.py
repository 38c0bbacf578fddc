"""A stage: a schedule as machine code with the memory of its calls, which it performs alone or with the team."""

import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.execute.team import team
from rvsm.runtime.kernels import player
from rvsm.runtime.kernels.jit import compile_functions
from rvsm.runtime.schedule.layout import aligned
from rvsm.runtime.schedule.scheduler import Schedule

Floats = NDArray[np.float32]
LONG = 0.25  # seconds: more is not spent on measuring
PATIENCE = 1.0  # seconds after which native code comes back to Python, where an interrupt is raised
LONG_STEP = 30e-6  # seconds of a step on each thread: beside that a barrier is nothing, and sharing helps the caches
QUICK = 50e-6  # seconds: a call that has less work for each thread is not worth waking helpers for


@dataclass(frozen=True, eq=False)
class _Request:
    """Which images of which arrays."""

    inputs: Sequence[Floats]
    outputs: Sequence[Floats]
    start: int
    count: int
    chunks: int


class Stage:
    """The compiled kernels of a schedule, the table that the player reads, and memory for calls."""

    def __init__(self, schedule: Schedule, threads: int) -> None:
        self.schedule = schedule
        self.threads = threads
        self.chunk_seconds = 0.0  # of one chunk on one thread, once it is measured
        addresses = compile_functions(step.variant for step in schedule.steps)
        self._table = np.stack([step.row(addresses) for step in schedule.steps])
        self._play = _play_function()
        self._yield = _yield_address()
        self._free: list[NDArray[np.uint8]] = []

    def perform(
        self, inputs: Sequence[Floats], outputs: Sequence[Floats], start: int, count: int, *, alone: bool = False
    ) -> None:
        """Compute images ``start`` to ``start + count``; ``inputs`` and ``outputs`` hold all images of the call."""
        chunks = -(-count // self.schedule.images)
        quick = chunks * self.chunk_seconds < QUICK * self.threads
        threads = 1 if alone or self.threads == 1 or quick else self.threads
        helped = threads > 1 and team().acquire()
        size = self.schedule.images * self._chunks_at_once(threads)
        try:
            for first in range(0, count, size):  # an interrupt is raised between
                images = min(size, count - first)
                request = _Request(inputs, outputs, start + first, images, -(-images // self.schedule.images))
                self._perform(request, threads if helped else 1)
        finally:
            if helped:
                team().release()

    def _chunks_at_once(self, threads: int) -> int:
        """Return how many chunks may be computed before an interrupt is answered; 0 seconds are not known yet."""
        return max(1, int(PATIENCE / max(self.chunk_seconds, 1e-9))) * threads if self.chunk_seconds < PATIENCE else 1

    def _perform(self, request: _Request, threads: int) -> None:
        chunks = request.chunks
        uneven = chunks % threads != 0 and chunks < 4 * threads
        long = self.chunk_seconds >= PATIENCE  # then step by step, and all threads at the same one
        shared = long or (threads > 1 and (uneven or self._step_seconds() > LONG_STEP * threads))
        arenas = self._take(1 if shared else min(threads, chunks))
        threads = threads if shared else len(arenas)
        steps = len(self.schedule.steps)
        try:
            call = self._call(request, threads, shared, arenas)
            for first, last in [(k, k + 1) for k in range(steps)] if long else [(0, steps)]:
                play = partial(self._play, call[0].ctypes.data, first, last)
                if threads == 1:
                    play(0)
                else:
                    team().run(play, threads)
        finally:
            self._free += arenas

    def times(self, inputs: Sequence[Floats], outputs: Sequence[Floats], repeats: int = 3) -> list[float]:
        """Return the seconds of each step for one chunk, on this thread; the least of several."""
        arenas = self._take(1)
        count = min(self.schedule.images, len(inputs[0]))
        call = self._call(_Request(inputs, outputs, 0, count, 1), 1, True, arenas)
        best = [float("inf")] * len(self.schedule.steps)
        for _ in range(repeats if self.schedule.seconds < LONG else 1):
            for k in range(len(best)):
                begin = time.perf_counter()
                self._play(call[0].ctypes.data, k, k + 1, 0)
                best[k] = min(best[k], time.perf_counter() - begin)
        self._free += arenas
        return best

    def measure(self, inputs: Sequence[Floats], outputs: Sequence[Floats], repeats: int = 3) -> float:
        """Time one chunk on this thread and remember it; a large network is not run for that, only estimated."""
        if self.schedule.seconds > LONG:
            self.chunk_seconds = self.schedule.seconds
            return self.chunk_seconds
        count = min(self.schedule.images, len(inputs[0]))
        seconds = []
        for _ in range(repeats):
            begin = time.perf_counter()
            self.perform(inputs, outputs, 0, count, alone=True)
            seconds.append(time.perf_counter() - begin)
            if sum(seconds) > LONG:
                break
        self.chunk_seconds = min(seconds)
        return self.chunk_seconds

    def _step_seconds(self) -> float:
        return self.chunk_seconds / len(self.schedule.steps)

    def _take(self, count: int) -> list[NDArray[np.uint8]]:
        taken: list[NDArray[np.uint8]] = []
        with suppress(IndexError):  # pop and += are whole, so that threads need no lock
            while len(taken) < count:
                taken.append(self._free.pop())
        return taken + [aligned(self.schedule.arena_bytes) for _ in range(count - len(taken))]

    def _call(
        self, request: _Request, threads: int, shared: bool, arenas: Sequence[NDArray[np.uint8]]
    ) -> list[NDArray[np.generic]]:
        """Return the description of a call, and the tables that it points to."""
        call = aligned(8 * player.CALL_SLOTS).view(np.int64)
        memory = np.array([arena.ctypes.data for arena in arenas], dtype=np.int64)
        sources, targets = (
            np.array([a.ctypes.data + request.start * a[0].nbytes for a in arrays], dtype=np.int64)
            for arrays in (request.inputs, request.outputs)
        )
        call[player.OPERATIONS] = self._table.ctypes.data
        call[player.ARENAS] = memory.ctypes.data
        call[player.INPUTS], call[player.OUTPUTS] = sources.ctypes.data, targets.ctypes.data
        call[player.BATCH], call[player.CHUNKS] = request.count, request.chunks
        call[player.THREADS], call[player.SHARED] = threads, shared
        call[player.YIELD] = self._yield
        return [call, memory, sources, targets]


def _play_function() -> Callable[[int, int, int, int], None]:
    """Return the compiled player."""
    address = compile_functions([player.Player(player.mode())])["play"]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)


def _yield_address() -> int:
    """Return the system's function that gives the rest of a time slice to others."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    return ctypes.cast(function, ctypes.c_void_p).value or 0
