"""Processes that start at once: forked from a server that has imported warm.py, while an import of torch takes seconds.

Each process of pytest has one server, which `rvsm compare --jobs` uses too if it runs. It is forked from that process
before the first test, so that both import everything only once, and ends with it.
"""

import importlib
import os
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import forkserver, get_context, resource_tracker, util
from pathlib import Path
from typing import Any
from unittest.mock import patch

_CONTEXT = get_context("forkserver")
_OF_PYTEST = {("error", Warning), ("always", DeprecationWarning), ("always", PendingDeprecationWarning)}


def serve() -> None:
    """Start the server unless it runs."""
    import warm  # noqa: F401

    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with patch.dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1"), patch.object(util, "spawnv_passfds", fork):
        forkserver.ensure_running()


def fork(_: bytes, arguments: Sequence[str], passed: Sequence[int]) -> int:
    """Fork a process that runs the code after ``python -c``, instead of one that has to import torch first.

    Args:
        arguments: of the command line of Python.
        passed: the files that stay open, besides the standard ones.

    """
    if pid := os.fork():
        return pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as in a process that was started
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    # What pytest has changed.
    sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
    warnings.filters[:] = [each for each in warnings.filters if (each[0], each[2]) not in _OF_PYTEST]
    kept = sorted({0, 1, 2, *passed})
    for before, after in pairwise([*kept, os.sysconf("SC_OPEN_MAX")]):
        os.closerange(before + 1, after)
    for module in (resource_tracker, forkserver):
        importlib.reload(module)  # the one whose process is being started has its lock
    try:
        exec(arguments[-1], {})
    finally:  # it may end by SystemExit, which must not reach what called this function
        os._exit(0)


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit status, negative for a signal, and what it printed, errors included."""

    status: int
    printed: str


class Process:
    """A function in a process of its own.

    Args:
        function: of a module that can be imported; it returns the exit status, or none for 0.
        arguments: of the function, to be pickled.
        folder: where it works.
        environment: variables to be added.

    """

    def __init__(
        self,
        function: Callable[..., int | None],
        *arguments: Any,
        folder: Path | str = ".",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        serve()
        handle, self._printed = tempfile.mkstemp()
        os.close(handle)
        how = (self._printed, str(folder), environment or {})
        self._process = _CONTEXT.Process(target=_obey, args=(function, arguments, *how))
        self._process.start()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it where a test has failed."""
        self._process.kill()

    def ended(self, timeout: float = 300) -> Ended:
        """Wait for the end."""
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            self._process.kill()
        printed = Path(self._printed).read_text(encoding="utf-8")
        Path(self._printed).unlink()
        assert status is not None, f"still running after {timeout} s, having printed: {printed}"
        return Ended(status, printed)


def run_together(functions: Sequence[Callable[..., int | None]], folder: Path | str = ".") -> list[Ended]:
    """Run functions in processes that know each other, as torchrun starts them, and wait for all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(len(functions)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = [
        Process(function, folder=folder, environment={**shared, "RANK": str(rank)})
        for rank, function in enumerate(functions)
    ]
    return [process.ended() for process in started]


def _obey(
    function: Callable[..., int | None], arguments: Any, printed: str, folder: str, environment: Mapping[str, str]
) -> None:
    file = os.open(printed, os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", buffering=1) for number in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    os.chdir(folder)
    sys.exit(function(*arguments))
