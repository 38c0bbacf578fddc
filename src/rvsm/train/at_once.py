"""Train several configurations at once, each in its own process."""

import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import StringIO
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from textwrap import indent
from types import FrameType
from typing import Any, Literal

import torch
from rich.console import Console

from rvsm.config import Config
from rvsm.train.divergence import DivergenceError
from rvsm.train.recorder import StoppedError
from rvsm.train.session import resume, say, start_or_resume, summary

Ending = Literal["finished", "diverged", "stopped", "failed"]
# A fork of this process would inherit torch's threads in an arbitrary state, and a new process would import torch,
# which takes seconds. Workers are therefore forked from a process that has imported everything and done nothing else.
_CONTEXT = get_context("forkserver") if "forkserver" in get_all_start_methods() else get_context("spawn")
_PRELOADED = ["rvsm.train", "torch._dynamo"]  # the second is imported by the first optimizer


@dataclass(frozen=True)
class _Worker:
    title: str
    process: BaseProcess
    answer: Connection


@dataclass(frozen=True)
class _Answer:
    """How a training ended, as a word and a sentence, and what it printed before that, such as warnings."""

    ending: Ending
    text: str
    said: str = ""


def run_at_once(wanted: Sequence[tuple[Config, Path]], jobs: int, console: Console) -> None:
    """Train several configurations at a time, divide the threads between them, and print a line for each.

    Ctrl-C, a termination signal, a closed terminal, or an error in one of them stops all, each after a checkpoint.
    """
    # All runs count, finished or not: a resumed run then has as many threads as at its start, and the same numbers.
    threads = max(1, torch.get_num_threads() // max(1, min(jobs, len(wanted))))
    waiting = list(enumerate(wanted, 1))
    working: dict[Connection, _Worker] = {}
    with _Stop(working) as stop:
        try:
            while waiting or working:
                while waiting and len(working) < jobs and not stop.asked:
                    number, (config, folder) = waiting.pop(0)
                    title = f"{number}/{len(wanted)} {config.name}, seed {config.seed}"
                    if (folder / "result.json").exists():
                        say(console, f"{title}, already finished: {summary(resume(folder, console))}")
                        continue
                    worker = _begin(title, config, folder, threads)
                    working[worker.answer] = worker
                    say(console, f"{title}: started")
                ready = wait([*working, stop.bell]) if working else []
                if stop.asked:
                    raise StoppedError("stopped")
                for answer in [answer for answer in working if answer in ready]:
                    worker = working.pop(answer)
                    _report(worker, _ended(worker), console)
        finally:
            _terminate(working)
            ended = [(worker, _ended(worker)) for worker in working.values()]
            for worker, last in ended:  # only after all have ended, because the terminal may be gone
                if last.said:
                    say(console, f"{worker.title}:\n{indent(last.said, '    ')}")


def _begin(title: str, config: Config, folder: Path, threads: int) -> _Worker:
    if _CONTEXT.get_start_method() == "forkserver":
        _CONTEXT.set_forkserver_preload(_PRELOADED)
    answer, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_work, args=(config, folder, threads, theirs))
    with _signals_blocked():
        process.start()
    theirs.close()  # so that the pipe closes when the process ends
    return _Worker(title, process, answer)


def _ended(worker: _Worker) -> _Answer:
    """Wait for a worker to end, and return its answer."""
    try:
        answer = worker.answer.recv()
    except (EOFError, OSError):  # it ended before it answered, or while it did
        answer = None
    worker.process.join()
    if answer is None:
        code = worker.process.exitcode
        return _Answer("failed", f"its process ended with code {code}, perhaps because memory ran out")
    assert isinstance(answer, _Answer)
    return answer


def _report(worker: _Worker, answer: _Answer, console: Console) -> None:
    """Print the result of a worker, or raise its error."""
    raised = answer.ending in ("stopped", "failed")
    if not raised:
        style = "yellow" if answer.ending == "diverged" else None
        say(console, f"{worker.title}: {answer.text}", style=style)
    if answer.said:
        say(console, (f"{worker.title}:\n" if raised else "") + indent(answer.said, "    "))
    if raised:
        kind = StoppedError if answer.ending == "stopped" else ValueError
        raise kind(f"{worker.title}: {answer.text}")


def _terminate(working: dict[Connection, _Worker]) -> None:
    for worker in working.values():
        worker.process.terminate()


class _Stop:
    """Records Ctrl-C, termination and a closed terminal, since an exception could come before a worker is known.

    A second Ctrl-C asks the workers a second time, so that they do not wait for a checkpoint.
    """

    def __init__(self, working: dict[Connection, _Worker]) -> None:
        self.asked = False
        self.bell, self._ring = _CONTEXT.Pipe(duplex=False)  # closes when it rings, so that it can be waited for
        self._working = working
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Stop":
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
            for number in numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, for example, ignores a closed terminal
                    self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._ring.close()
        self.bell.close()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked = True
            self._ring.close()
        elif number == signal.SIGINT:  # the others may arrive twice on their own, from a shell and from the system
            _terminate(self._working)


_BLOCKED = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block Ctrl-C and termination while a process is started; it inherits the block until it is ready for them."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started together with the first process, it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In a worker's process


def _work(config: Config, folder: Path, threads: int, answer: Connection) -> None:
    """Train in this process, and send how it ended."""
    _obey_the_parent_only()
    threading.Thread(target=_stop_without_parent, daemon=True).start()
    torch.set_num_threads(threads)
    file = StringIO()
    console = Console(file=file, force_terminal=False)

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(console, f"rvsm: {message}")  # a sentence, as on the command line

    with warnings.catch_warnings():
        warnings.showwarning = show
        ending, text = _train(config, folder, console)
    with suppress(OSError):  # the parent may be gone
        answer.send(_Answer(ending, text, said=file.getvalue().rstrip()))


def _train(config: Config, folder: Path, console: Console) -> tuple[Ending, str]:
    try:
        return "finished", summary(start_or_resume(config, folder, console, brief=True))
    except DivergenceError as error:
        return "diverged", str(error)
    except KeyboardInterrupt as error:
        return "stopped", str(error)
    except Exception as error:  # of any kind; the parent reports it
        return "failed", str(error) or type(error).__name__


def _obey_the_parent_only() -> None:
    """Leave signals to the whole process group to the parent, which then asks this process to stop.

    A Ctrl-C while this process began was blocked, and ignoring the signal discards it. Later, the training handles
    both signals, and a second one stops it without a checkpoint. This process leaves the group, so that Ctrl-C or a
    termination of the group, followed by the parent's request, does not count as two. A termination before the
    training begins ends this process at once.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)


def _stop_without_parent() -> None:
    """Stop the training after a checkpoint if the parent has died and cannot request it."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
