"""Trains in forked processes, each of which may kill itself at a given moment; see `Forks` in conftest.py.

An order is a line of JSON with the words of ``rvsm`` and, if the process shall die, ``kill_at``: the number of the
function call, Python's or C's, before which it kills itself, as kill -9 would, or with another ``signal``. With
``within``, only calls made inside functions of that name are counted. The answer is a line of JSON with the exit
status, the printed text and the number of calls.

With ``ranks``, that many processes train together, as torchrun starts them; ``rank`` is the one that shall die, and
``more`` are words for that one alone. The answer then has lists of statuses and texts.
"""

import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any


class Clock:
    """Counts calls, and kills the process when it is time."""

    def __init__(self, kill_at: int | None, within: str | None, number: int) -> None:
        self.calls, self.kill_at, self.within, self.number = 0, kill_at, within, number
        self.depth = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.within is not None and frame.f_code.co_name == self.within and event in ("call", "return"):
            self.depth += 1 if event == "call" else -1
        if event in ("call", "c_call") and (self.within is None or self.depth > 0):
            if self.calls == self.kill_at:
                os.kill(os.getpid(), self.number)
            self.calls += 1


def obey(order: dict[str, Any]) -> dict[str, Any]:
    if "ranks" in order:
        return _together(order)
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder, "counted")
        status, printed = _ended(_forked(order, Path(folder, "printed"), counted))
        calls = int(counted.read_text()) if counted.exists() else None
        return {"status": status, "printed": printed, "calls": calls}


def _together(order: dict[str, Any]) -> dict[str, Any]:
    size, special = order["ranks"], order.get("rank")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(size):
            own = {**order, "environment": {**shared, "RANK": str(rank)}}
            if rank != special:
                own = {**own, "kill_at": None, "more": []}
            started.append(_forked(own, Path(folder, f"printed-{rank}"), Path(folder, f"counted-{rank}")))
        statuses, printed = zip(*map(_ended, started), strict=True)
        return {"status": statuses, "printed": printed}


def _forked(order: dict[str, Any], printed: Path, counted: Path) -> tuple[int, Path]:
    child = os.fork()
    if not child:
        os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        os.environ.update(order.get("environment", {}))
        try:
            os._exit(_train(order, counted))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(99)  # never back into the loop of the parent
    return child, printed


def _ended(started: tuple[int, Path]) -> tuple[int, str]:
    child, printed = started
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, printed.read_text(encoding="utf-8")


def _train(order: dict[str, Any], counted: Path) -> int:
    from rvsm.cli import main
    from rvsm.train import session
    from rvsm.train.recorder import Recorder

    session.Recorder = partial(Recorder, minutes=order.get("minutes", 10))  # type: ignore[misc]
    os.chdir(order.get("folder", "."))
    clock = Clock(order.get("kill_at"), order.get("within"), order.get("signal", signal.SIGKILL))
    if "script" in order:
        runpy.run_path(order["script"], run_name="__main__")
        return 0
    sys.setprofile(clock)
    try:
        code = main([*order["words"], *order.get("more", [])])
    finally:
        sys.setprofile(None)
        sys.stdout.flush()
        sys.stderr.flush()
    counted.write_text(str(clock.calls))
    return code


def prepare() -> None:
    """Import what the children will need, so that they need not."""
    import torch

    import rvsm.compare
    import rvsm.config
    import rvsm.lowering
    import rvsm.train
    from rvsm.data import Digits

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports torch._dynamo, which takes seconds
    Digits().load()
    rvsm.config.read_config(flags=["--budget.sparsity", "0.5"])


if __name__ == "__main__":
    prepare()
    for line in sys.stdin:
        print(json.dumps(obey(json.loads(line))), flush=True)
