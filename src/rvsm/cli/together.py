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
    """Leave the other processes, and complain if none of them has: the first one at once, the others if it does not.

    Each leaves its own error where the others find it, and then stops answering. A process that could not go on
    without another one can therefore name the cause.
    """
    from rvsm.train.ranks import LostError, is_loss, leave_ranks

    if code:
        signal.signal(
            signal.SIGTERM, signal.SIG_IGN
        )  # torchrun ends all when one has failed, maybe the one that speaks
    words = str(complaint)
    if is_loss(complaint):
        said = words if isinstance(complaint, LostError) else "another process has ended, perhaps because it was killed"
        words = "\n".join([*_causes(ranks), said])
    elif complaint is not None:
        with suppress(RuntimeError):
            _store(ranks).set(f"rvsm/failed/{ranks.rank}", words)
    with suppress(RuntimeError):
        leave_ranks()
    if code:
        if _speaks(ranks) and complaint is not None:
            complain(words)
            _tell_torchrun(words)
        _wait_for_listeners(ranks)


def _speaks(ranks: "Ranks") -> bool:
    """Return whether it falls to this process to complain; of several that could, only one does."""
    try:
        if not ranks.first and _reaches(ranks, "rvsm/spoken", 1):
            return False
        return _store(ranks).add("rvsm/spoken", 1) == 1
    except RuntimeError:  # the first process kept the messages, and was killed
        return True


def _wait_for_listeners(ranks: "Ranks") -> None:
    """Let the first process stay until the others know that it has spoken; it may be the one that keeps the messages."""
    with suppress(RuntimeError):
        if ranks.first:
            _reaches(ranks, "rvsm/heard", ranks.size - 1)
        else:
            _store(ranks).add("rvsm/heard", 1)


def _reaches(ranks: "Ranks", counter: str, count: int) -> bool:
    """Return whether a counter reaches a number before patience ends."""
    deadline = time.monotonic() + _PATIENCE
    while (found := _store(ranks).add(counter, 0)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return found >= count


def _causes(ranks: "Ranks") -> list[str]:
    """Return the errors of other processes."""
    keys = {f"process {rank} of {ranks.size}": f"rvsm/failed/{rank}" for rank in range(ranks.size)}
    with suppress(RuntimeError):
        return [f"{who}: {_store(ranks).get(key).decode()}" for who, key in keys.items() if _store(ranks).check([key])]
    return []


def _store(ranks: "Ranks") -> "Store":
    assert ranks.store is not None
    return ranks.store


def _tell_torchrun(words: str) -> None:
    """Leave the error where torchrun looks for it, so that its report repeats the sentence."""
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with suppress(OSError):
            message = {"message": words, "extraInfo": {"timestamp": str(int(time.time())), "py_callstack": words}}
            Path(file).write_text(json.dumps({"message": message}), encoding="utf-8")
