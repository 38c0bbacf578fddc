"""Processes that start at once: forked from a server that has imported warm.py, while an import of torch takes seconds.

Each process of pytest has one server, which `rvsm compare --jobs` uses too if it runs. It ends with that process.
"""

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

_CONTEXT = get_context("forkserver")


def serve() -> None:
    """Start the server unless it runs."""
    _CONTEXT.set_forkserver_preload(["warm"])
    # TORCH_CPP_LOG_LEVEL as the command sets it, which is too late where torch is imported.
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with patch.dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR"):
        forkserver.ensure_running()


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
