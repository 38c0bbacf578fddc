"""The threads that help with a call: Python's own, one for each further core, asleep in a queue between calls.

ctypes releases the interpreter's lock, so that all of them are in native code at once. A call that finds the helpers at
work for another one runs alone: with many callers, each has a core of its own.
"""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[int], object]


def cores() -> int:
    """Return the threads to use: ``OMP_NUM_THREADS`` if it is set, else the cores that this process may use."""
    wish = os.environ.get("OMP_NUM_THREADS", "")
    if wish.isdigit() and int(wish) > 0:
        return int(wish)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Team:
    """The caller and its helpers."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._tasks: list[SimpleQueue[Work]] = []
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()

    def acquire(self) -> bool:
        """Say whether the helpers are free, and take them if so."""
        return self._busy.acquire(blocking=False)

    def release(self) -> None:
        """Let others have the helpers."""
        self._busy.release()

    def run(self, work: Work, threads: int) -> None:
        """Call ``work(0)`` here and ``work(1)``, … in helpers, which must have been acquired, and wait for all."""
        while len(self._tasks) < threads - 1:
            tasks: SimpleQueue[Work] = SimpleQueue()
            number = len(self._tasks) + 1
            self._tasks.append(tasks)
            threading.Thread(target=self._help, args=(tasks, number), name=f"rvsm-{number}", daemon=True).start()
        for tasks in self._tasks[: threads - 1]:
            tasks.put(work)
        try:
            work(0)
        finally:
            problems = [self._done.get() for _ in range(threads - 1)]
        for problem in problems:
            if problem is not None:
                raise problem

    def _help(self, tasks: "SimpleQueue[Work]", number: int) -> None:
        while True:
            work = tasks.get()
            problem = None
            try:
                work(number)
            except BaseException as error:  # handed to the caller, who waits for it
                problem = error
            del work
            self._done.put(problem)


_team = Team()


def team() -> Team:
    """Return this process's team."""
    return _team


def _forget() -> None:
    """Start anew in a forked child: threads do not survive a fork."""
    global _team  # noqa: PLW0603
    _team = Team()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
