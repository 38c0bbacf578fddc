"""Runs processes of a sweep at once, forked from this one; see `sweeper` in conftest.py.

An order is a line of JSON: the words of several ``rvsm sweep`` commands, which run at the same time, and ``kill``: a
file pattern; as soon as such a file exists, the first process is killed with SIGKILL. The answer is a line of JSON with
the exit status and the printed text of each.
"""

import json
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any


def obey(order: dict[str, Any]) -> list[dict[str, Any]]:
    os.chdir(order["folder"])
    with tempfile.TemporaryDirectory() as folder:
        printed = [Path(folder, str(i)) for i in range(len(order["commands"]))]
        children = []
        for words, file in zip(order["commands"], printed, strict=True):
            child = os.fork()
            if not child:
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), 1)
                os.dup2(1, 2)
                os._exit(_sweep(words))
            children.append(child)
        if order.get("kill"):
            while not list(Path().glob(order["kill"])):
                time.sleep(0.002)
            os.kill(children[0], signal.SIGKILL)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        return [
            {"status": status, "printed": file.read_text(encoding="utf-8")}
            for status, file in zip(statuses, printed, strict=True)
        ]


def _sweep(words: list[str]) -> int:
    import rvsm.sweep
    from rvsm.cli import main

    # Signs of life so often that the tests need not wait.
    for name in ("run", "join"):
        setattr(rvsm.sweep, name, partial(getattr(rvsm.sweep, name), beat=0.3, grace=2.0))
    code = main(["sweep", *words])
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def prepare() -> None:
    """Import what the children will need, so that they need not."""
    import rvsm.config
    import rvsm.sweep
    from rvsm.data import Digits

    torch = sys.modules["torch"]
    torch.set_num_threads(1)
    Digits().load()
    rvsm.config.read_config(flags=["--budget.sparsity", "0.5"])


if __name__ == "__main__":
    prepare()
    for line in sys.stdin:
        print(json.dumps(obey(json.loads(line))), flush=True)
