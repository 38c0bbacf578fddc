"""Sparse or dense: both ways are timed on a sample of each layer, and the faster one is kept."""

import ctypes
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime import convolve, jit
from rvsm.runtime.kernels import frame
from rvsm.runtime.packing import Floats
from rvsm.runtime.steps import Step

REPEATS = 3
SPARSE_BELOW = 0.1  # densities at which there is nothing to ask
DENSE_ABOVE = 0.9
LONG = 0.25  # seconds: a sample that takes longer, with kernels as large as an image, is not run, and …
DENSE_UNTRIED = 0.5  # … its density decides


class Chooser:
    """Decides for each convolution; with ``forced`` the same for all, which tests use."""

    def __init__(self, forced: str | None = None) -> None:
        self.forced = forced

    def dense(
        self, site: convolve.Site, taps: convolve.Taps, weights: Floats, bias: Floats, *, arena_bytes: int
    ) -> bool:
        """Say whether the dense kernel is faster for this layer."""
        if self.forced is not None:
            return self.forced == "dense"
        density = np.count_nonzero(weights) / weights.size
        if density >= DENSE_ABOVE or density <= SPARSE_BELOW:
            return bool(density >= DENSE_ABOVE)
        arena = np.zeros(arena_bytes + 64, dtype=np.uint8)
        seconds = {}
        for dense in (False, True):
            made = convolve.steps(site, taps, weights, bias, dense=dense, sample=True)
            if _work(made) > LONG:
                return bool(density > DENSE_UNTRIED)
            seconds[dense] = sum(_time(step, arena) for step in made) / sum(step.outputs for step in made)
        return seconds[True] < seconds[False]


def _work(made: list[Step]) -> float:
    """Guess the seconds of steps: about a nanosecond for each number in a stream, at each tile."""
    return 1e-9 * sum(np.size(step.arguments["stream"]) * step.tiles for step in made)


def _time(step: Step, arena: NDArray[np.uint8]) -> float:
    address = jit.compile_kernels({step.kernel: step.write})[step.kernel]
    row = np.zeros(frame.SLOTS, dtype=np.int64)
    for slot, value in step.arguments.items():
        row[frame.HEAD + step.slots.index(slot)] = value if isinstance(value, int) else value.ctypes.data
    kinds = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3
    function: Callable[..., None] = ctypes.CFUNCTYPE(None, *kinds)(address)
    start = arena.ctypes.data + -arena.ctypes.data % 64
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        function(row.ctypes.data, start, None, 0, 0, 1)
        best = min(best, time.perf_counter() - begin)
    return best
