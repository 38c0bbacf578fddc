"""Choosing between ways to compute the same: each is timed on a sample of its work, and the fastest is kept."""

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels.jit import compile_functions
from rvsm.runtime.kernels.kernel import PARAMETERS
from rvsm.runtime.schedule.layout import aligned
from rvsm.runtime.schedule.step import Step

REPEATS = 3
LONG = 0.25  # seconds: a sample that takes longer, with kernels as large as an image, is not run
TYPES = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64}


@dataclass(frozen=True, eq=False)
class Sample:
    """A small part of the work: its steps, the numbers that they compute, and a guess of the seconds they take."""

    steps: list[Step]
    outputs: int
    seconds: float


def fastest(ways: Mapping[str, Callable[[], Sample]], arena_bytes: int) -> str | None:
    """Return the way that takes the least time for each output; None if a sample would take too long."""
    arena = aligned(arena_bytes)
    seconds = {}
    for name, sample in ways.items():
        made = sample()
        if made.seconds > LONG:
            return None
        seconds[name] = sum(_seconds(step, arena) for step in made.steps) / made.outputs
    return min(seconds, key=seconds.__getitem__)


def _seconds(step: Step, arena: NDArray[np.uint8]) -> float:
    """Return the least time of a step, alone on this thread."""
    addresses = compile_functions([step.variant])
    function = ctypes.CFUNCTYPE(None, *(TYPES[kind] for kind, _ in PARAMETERS))(addresses[step.variant.name])
    row = step.row(addresses)
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        function(row.ctypes.data, arena.ctypes.data, None, 0, 0, 1)
        best = min(best, time.perf_counter() - begin)
    return best
