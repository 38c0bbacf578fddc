"""The helper threads of a call, one for each additional core: they wait in native code, and play what a leader posts.

They are Python threads, because those are known to debuggers and profilers, but they enter native code once and stay
there: no call waits for the interpreter's lock. If the helpers are busy with another call, a call runs alone: with many
callers, each has its own core.
"""

import atexit
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rvsm.cores import PER_CORE, require_threads, usable_cores
from rvsm.runtime.kernels import crew
from rvsm.runtime.kernels.jit import Code, compile_functions
from rvsm.runtime.kernels.player import Player, mode
from rvsm.runtime.schedule.layout import aligned

MOST = PER_CORE * (os.cpu_count() or 1)  # helpers
PLAYER = Player(mode())


def cores() -> int:
    """Return the number of threads: ``OMP_NUM_THREADS`` if it is set, otherwise the cores that the process may use."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    return usable_cores()


def thread_count(requested: int | None) -> int:
    """Return the requested number of threads, or the default."""
    return require_threads(cores() if requested is None else requested)


class Team:
    """The caller and its helpers."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._helpers: list[threading.Thread] = []
        self._boxes = aligned(8 * crew.BOX_SLOTS * MOST).view(np.int64).reshape(MOST, crew.BOX_SLOTS)
        self._address = self._boxes.ctypes.data

    def acquire(self) -> bool:
        """Acquire the helpers if they are free, and return whether they were."""
        return self._busy.acquire(blocking=False)

    def release(self) -> None:
        """Release the helpers."""
        self._busy.release()

    def play(self, call: int, first: int, last: int, threads: int) -> None:
        """Play some operations of a call with helpers, which must have been acquired; this thread is the first.

        It returns when all are done, and only then an interrupt is raised: the helpers use the memory of the call.
        """
        if len(self._helpers) < threads - 1:
            self._hire(threads - 1)
        _lead()(self._address, threads, call, first, last)

    def _hire(self, count: int) -> None:
        """Start threads until there are ``count`` helpers."""
        for k in range(len(self._helpers), count):
            box = self._boxes[k]
            box[[crew.FROM, crew.TO]] = os.pipe()
            box[[crew.READ, crew.WRITE, crew.YIELD]] = [system(name) for name in ("read", "write", "yield")]
            box[[crew.STATE, crew.NUMBER, crew.PLAY]] = crew.DONE, k + 1, play_address()
            thread = threading.Thread(target=_serve, args=(box,), name=f"rvsm-{k + 1}", daemon=True)
            thread.start()
            self._helpers.append(thread)

    def dismiss(self) -> None:
        """End the helpers, and let all further calls run alone."""
        if self.acquire():  # and never release them
            dismiss = function(crew.Dismiss(), 1)
            for thread, box in zip(self._helpers, self._boxes, strict=False):
                dismiss(box.ctypes.data)
                thread.join()
            self.close()

    def close(self) -> None:
        """Close the pipes of helpers that have ended."""
        for _, box in zip(self._helpers, self._boxes, strict=False):
            for end in box[[crew.FROM, crew.TO]].tolist():
                os.close(end)


def _serve(box: NDArray[np.int64]) -> None:
    function(crew.Serve(), 1)(box.ctypes.data)


@cache
def _lead() -> Callable[..., None]:
    return function(crew.Lead(), 5)


def function(code: Code, arguments: int) -> Callable[..., None]:
    """Return a native function of so many integers or addresses; it runs without the interpreter's lock."""
    address = compile_functions([code])[code.name]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)(address)


@cache
def play_address() -> int:
    """Return the address of the player."""
    return compile_functions([PLAYER])[PLAYER.name]


@cache
def system(name: str) -> int:
    """Return the address of a function of the system: ``read``, ``write``, or ``yield``, which lets others run."""
    if sys.platform == "win32":
        library, name = (
            (ctypes.windll.kernel32, "SwitchToThread") if name == "yield" else (ctypes.CDLL("ucrtbase"), f"_{name}")
        )
    else:
        library, name = ctypes.CDLL(None), "sched_yield" if name == "yield" else name
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


_team = Team()


def team() -> Team:
    """Return this process's team."""
    return _team


def _forget() -> None:
    """Start anew in a forked child: threads do not survive a fork."""
    global _team  # noqa: PLW0603
    _team.close()
    _team = Team()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

# Helpers must not be in native code when the interpreter gives its memory back.
atexit.register(lambda: team().dismiss())
