"""A command on several processes, as torchrun starts them: one of them writes and prints, and all end together."""

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rvsm.cli.terminal import complain
from rvsm.extras import MissingLibraryError, needed_by

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from rvsm.train.ranks import Ranks

Ending = tuple[int, object | None]
"""The exit code of a command, and its complaint, if there is one: an error or a sentence."""

TOGETHER = ("train", "resume", "compare")
"""The commands for several processes."""

_PATIENCE = 3.0  # seconds in which the first process can say what is wrong; torchrun ends the others after 30


def launched() -> bool:
    """Return whether this is one of several processes; the variable is that of torch.distributed."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def run_together(command: str, run: Callable[[], Ending]) -> int:
    """Run a command on this process and on those it belongs to, and return the exit code."""
    try:
        ranks = _join(command)
    except (ValueError, RuntimeError, MissingLibraryError) as error:
        complain(error)
        return 1
    with _quiet(not ranks.first):
        code, complaint = run()
    _end(ranks, code, complaint)
    return code


def _join(command: str) -> "Ranks":
    if command not in TOGETHER:
        raise ValueError(
            f"{command} runs on one process; start it without torchrun, or unset the environment variable WORLD_SIZE"
        )
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else, a killed process makes torch print its C++ stack
    with needed_by(command, extra="train"):
        from rvsm.train.ranks import join_ranks
    return join_ranks()


@contextmanager
def _quiet(quiet: bool) -> Iterator[None]:
    """Print nothing if so wanted: the first process says it."""
    if not quiet:
        yield
        return
    logging.disable()
    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _end(ranks: "Ranks", code: int, complaint: object | None) -> None:
    """Leave the other processes, and let one of them complain: the first one, or another if the first one does not.

    Each leaves its own error where the others find it, so that a process that lost another one can name the cause.
    """
    from rvsm.train.ranks import LostError, is_loss, leave_ranks

    words = str(complaint)
    if is_loss(complaint):
        if not isinstance(complaint, LostError):
            words = "another process has ended, perhaps because it was killed"
    elif code:
        with suppress(RuntimeError):
            _store(ranks).set(f"rvsm/failed/{ranks.rank}", words)
        words = words if ranks.first else _by(ranks, ranks.rank, words)
    if code:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends all when one fails, even the one that speaks
    if isinstance(complaint, BaseException):
        complaint.__traceback__ = complaint.__context__ = complaint.__cause__ = None  # their frames hold the network
    leave_ranks()
    if not code:
        return
    lost = ranks.first and is_loss(complaint)
    causes = _causes(ranks) if lost else []
    if _speaks(ranks) and complaint is not None:
        complain("\n".join([*causes, words]))
        _tell_torchrun("\n".join([*causes, words]))
    gone = lost and not causes  # the lost process was killed, and does not listen
    _wait_for_listeners(ranks, ranks.size - 1 - gone)


def _speaks(ranks: "Ranks") -> bool:
    """Return whether this process should complain; of those after the first, only one does, and only if it must."""
    try:
        silent = not ranks.first and _reaches(ranks, "rvsm/spoken", 1)
        return not silent and (_store(ranks).add("rvsm/spoken", 1) == 1 or ranks.first)
    except RuntimeError:  # the first process kept the messages, and was killed
        return True


def _causes(ranks: "Ranks") -> list[str]:
    """Return the errors of other processes, unless one of them has already complained."""
    keys = {rank: f"rvsm/failed/{rank}" for rank in range(ranks.size)}
    with suppress(RuntimeError):
        if not (store := _store(ranks)).add("rvsm/spoken", 0):
            return [_by(ranks, rank, store.get(key).decode()) for rank, key in keys.items() if store.check([key])]
    return []


def _by(ranks: "Ranks", rank: int, words: str) -> str:
    return f"process {rank} of {ranks.size}: {words}"


def _wait_for_listeners(ranks: "Ranks", count: int) -> None:
    """Let the first process stay until so many others know that it has spoken; it may be the one with the messages."""
    with suppress(RuntimeError):
        if ranks.first:
            _reaches(ranks, "rvsm/heard", count)
        else:
            _store(ranks).add("rvsm/heard", 1)


def _reaches(ranks: "Ranks", counter: str, count: int) -> bool:
    """Return whether a counter reaches a number before patience ends."""
    deadline = time.monotonic() + _PATIENCE
    while (found := _store(ranks).add(counter, 0)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return found >= count


def _store(ranks: "Ranks") -> "Store":
    assert ranks.store is not None
    return ranks.store


def _tell_torchrun(words: str) -> None:
    """Leave the error where torchrun looks for it, so that its report repeats the sentence."""
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with suppress(OSError):
            message = {"message": words, "extraInfo": {"timestamp": str(int(time.time())), "py_callstack": words}}
            Path(file).write_text(json.dumps({"message": message}), encoding="utf-8")
