"""Several trainings at once, each in a process of its own."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Literal

import torch
from rich.console import Console

from rvsm.config import Config
from rvsm.train.divergence import DivergenceError
from rvsm.train.recorder import StoppedError
from rvsm.train.session import resume, start_or_resume, summary

Ending = Literal["finished", "diverged", "stopped", "failed"]


@dataclass(frozen=True)
class _Worker:
    title: str
    process: BaseProcess
    answer: Connection


def run_at_once(wanted: Sequence[tuple[Config, Path]], jobs: int, console: Console) -> None:
    """Train several configurations at a time, each on its share of the threads, and print a line for each.

    Ctrl-C, a termination, or an error in one of them stops all, each after a checkpoint.
    """
    threads = max(1, torch.get_num_threads() // jobs)
    waiting = list(enumerate(wanted, 1))
    working: dict[Connection, _Worker] = {}
    try:
        with _termination_interrupts():
            while waiting or working:
                while waiting and len(working) < jobs:
                    number, (config, folder) = waiting.pop(0)
                    title = f"{number}/{len(wanted)} {config.name}, seed {config.seed}"
                    if (folder / "result.json").exists():
                        _say(console, f"{title}, finished already: {summary(resume(folder, console))}")
                        continue
                    worker = _begin(title, config, folder, threads)
                    working[worker.answer] = worker
                    _say(console, f"{title}: begun")
                for answer in wait(list(working)) if working else []:
                    assert isinstance(answer, Connection)
                    _end(working.pop(answer), console)
    except KeyboardInterrupt:
        raise StoppedError("stopped") from None
    finally:
        for worker in working.values():
            worker.process.terminate()
        for worker in working.values():
            worker.process.join()


def _begin(title: str, config: Config, folder: Path, threads: int) -> _Worker:
    context = get_context("spawn")  # a fork would take over torch's threads in whatever state they are
    answer, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(config, folder, threads, theirs))
    process.start()
    theirs.close()  # so that the pipe ends where the process ends
    return _Worker(title, process, answer)


def _work(config: Config, folder: Path, threads: int, answer: Connection) -> None:
    """Train in this process, and answer how it ended, in a word and a sentence."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C is for the parent, which asks us to stop; asked twice, we would not wait for a checkpoint
    torch.set_num_threads(threads)
    told: tuple[Ending, str]
    try:
        told = "finished", summary(start_or_resume(config, folder, Console(file=StringIO()), brief=True))
    except DivergenceError as error:
        told = "diverged", str(error)
    except KeyboardInterrupt as error:
        told = "stopped", str(error)
    except Exception as error:  # whatever it is, it is for the parent to tell
        told = "failed", str(error) or type(error).__name__
    answer.send(told)


def _end(worker: _Worker, console: Console) -> None:
    """Print what came of a worker, or raise it."""
    try:
        ending, text = worker.answer.recv()
    except EOFError:
        worker.process.join()
        ending = "failed"
        text = f"its process ended with code {worker.process.exitcode}, perhaps for want of memory"
    worker.process.join()
    if ending == "stopped":
        raise StoppedError(text)
    if ending == "failed":
        raise ValueError(f"{worker.title}: {text}")
    _say(console, f"{worker.title}: {text}", style="yellow" if ending == "diverged" else None)


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Treat a termination as Ctrl-C, so that the processes are stopped, too."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
