"""The helper threads of a call: Python threads, one for each additional core, which wait in a queue between calls.

ctypes releases the interpreter's lock, so all of them can run native code at once. If the helpers are busy with another
call, a call runs alone: with many callers, each has its own core.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import call
from queue import SimpleQueue

from rvsm.cores import require_threads, usable_cores

Work = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class _Task:
    """Work for the helpers: an entry for each helper that has finished, and a bell that wakes the caller."""

    work: Work
    ended: list[BaseException | None] = field(default_factory=list)
    bell: SimpleQueue[None] = field(default_factory=SimpleQueue)


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
        self._helpers: list[SimpleQueue[_Task]] = []

    def acquire(self) -> bool:
        """Acquire the helpers if they are free, and return whether they were."""
        return self._busy.acquire(blocking=False)

    def release(self) -> None:
        """Release the helpers."""
        self._busy.release()

    def run(self, work: Work, threads: int) -> None:
        """Call ``work(0)`` here and ``work(1)``, … in helpers, which must have been acquired, and wait for all.

        Interrupts wait, too, because the helpers use memory that the caller would reuse.
        """
        while len(self._helpers) < threads - 1:
            tasks: SimpleQueue[_Task] = SimpleQueue()
            number = len(self._helpers) + 1
            threading.Thread(target=_help, args=(tasks, number), name=f"rvsm-{number}", daemon=True).start()
            self._helpers.append(tasks)
        task = _Task(work)
        starts: list[Callable[[], object]] = [partial(tasks.put, task) for tasks in self._helpers[: threads - 1]]
        starts.append(partial(work, 0))
        everything = map(call, starts)
        try:
            deque(everything, maxlen=0)  # one instruction: an interrupt in between would leave helpers at a barrier
        finally:
            _wait(task, threads - 1)
        for problem in task.ended:
            if problem is not None:
                raise problem


def _wait(task: _Task, count: int) -> None:
    """Wait until this many helpers have finished; an interrupt in the meantime is raised afterwards."""
    interrupt = None
    while len(task.ended) < count:
        try:
            task.bell.get()
        except BaseException as error:  # the bell may or may not have been received: the list is what counts
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _help(tasks: SimpleQueue[_Task], number: int) -> None:
    while True:
        task = tasks.get()
        problem = None
        try:
            task.work(number)
        except BaseException as error:  # passed to the waiting caller
            problem = error
        task.ended.append(problem)
        task.bell.put(None)
        del task, problem


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
