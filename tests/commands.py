"""What the processes of tests run: the command, with changes that only a process of its own can have."""

import json
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from multiprocessing import util
from pathlib import Path
from types import FrameType
from typing import Any


class Clock:
    """Counts function calls, Python's and C's, and kills the process, as kill -9 would, when it is time.

    Args:
        names: of functions; calls inside of them are counted, by name. None counts all calls.
        kill_at: the number of the call before which the process dies; none for never.
        number: another signal than SIGKILL.

    """

    def __init__(self, names: Sequence[str | None], kill_at: int | None, number: int) -> None:
        self.calls, self.depth = dict.fromkeys(names, 0), {name: int(name is None) for name in names}
        self.kill_at, self.number = kill_at, number
        self._enter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code.co_name in self.depth and event in ("call", "return"):
            self.depth[frame.f_code.co_name] += 1 if event == "call" else -1
            self._enter()
        if event in ("call", "c_call"):
            for name in self.inside:
                if self.calls[name] == self.kill_at:
                    os.kill(os.getpid(), self.number)
                self.calls[name] += 1

    def _enter(self) -> None:
        self.inside = [name for name, depth in self.depth.items() if depth > 0]


def train(
    words: Sequence[str],
    *,
    counted: Path | None = None,
    names: Sequence[str | None] = (),
    kill_at: int | None = None,
    within: str | None = None,
    number: int = signal.SIGKILL,
    minutes: float = 10,
) -> int:
    """Run ``rvsm`` with these words, with checkpoints every few ``minutes``; it may die before a certain call.

    Args:
        words: of the command line.
        counted, names: a file for the numbers of calls inside functions of these names, as pairs in JSON.
        kill_at, within, number: when and how it dies, instead: before a call inside functions of a name; see `Clock`.
        minutes: between two checkpoints.

    """
    from rvsm.cli import main
    from rvsm.train import session
    from rvsm.train.recorder import Recorder

    session.Recorder = partial(Recorder, minutes=minutes)  # type: ignore[misc]
    if counted is None and kill_at is None:
        return main(words)
    clock = Clock(names if counted is not None else [within], kill_at, number)
    sys.setprofile(clock)
    try:
        code = main(words)
    finally:
        sys.setprofile(None)
    if counted is not None:
        counted.write_text(json.dumps(list(clock.calls.items())))
    return code


def sweep(words: Sequence[str], *, grace: float = 2.0, **death: Any) -> int:
    """Run ``rvsm sweep``, with signs of life so frequent that a test need not wait for them.

    Args:
        words: of the command line.
        grace: the seconds without a sign after which another process counts as dead.
        death: when it dies; see `train`.

    """
    import rvsm.sweep

    for name in ("run", "join"):
        setattr(rvsm.sweep, name, partial(getattr(rvsm.sweep, name), beat=0.3, grace=grace))
    return train(["sweep", *words], **death)


def compare(words: Sequence[str]) -> int:
    """Run ``rvsm compare`` in a process group of its own; the server that its processes come from is forked from it."""
    from rvsm.cli import main

    os.setsid()
    util.spawnv_passfds = _fork  # type: ignore[attr-defined]
    return main(["compare", *words])


def _fork(_: bytes, arguments: Sequence[str], passed: Sequence[int]) -> int:
    """Fork a process that runs the code after ``python -c``, instead of one that has to import torch first."""
    if pid := os.fork():
        return pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as in a process that was started
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    kept = sorted({0, 1, 2, *passed})
    for before, after in pairwise([*kept, os.sysconf("SC_OPEN_MAX")]):
        os.closerange(before + 1, after)
    run_code(arguments[-1])
    os._exit(0)


def script(path: str, *words: str) -> None:
    """Run a script with the words of its command line."""
    sys.argv = [path, *words]
    runpy.run_path(path, run_name="__main__")


def run_module(name: str, *words: str) -> None:
    """Run a module as ``python -m`` does, with the words of its command line."""
    sys.argv = [name, *words]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_code(text: str) -> None:
    """Run a piece of Python."""
    exec(compile(text, "<code>", "exec"), {})
