"""The processes: one imports everything, then it forks one process, two, four, and one again.

The checks run one after the other on all ranks, in the order in which they are written. If one fails, those after it do
not run.
"""

import gc
import json
import os
import traceback
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import torch.distributed as dist

RUNS = {"one": 1, "two": 2, "four": 4, "last": 1}
"""How many processes run at a time."""

MODULES = (
    "without_shards", "thresholds", "methods", "fsdp_options", "meshes", "ranks_alike", "checkpoints",
    "lost_ranks",  # at last, because few survive
)  # fmt: skip
"""Where the checks are, in the order in which they run."""

CHECKS: list[tuple[Callable[[], None], tuple[str, ...]]] = []


def on(*runs: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Run a check in these runs."""

    def add(check: Callable[[], None]) -> Callable[[], None]:
        CHECKS.append((check, runs))
        return check

    return add


def main(*only: str) -> None:
    """Fork the processes of each run in this folder, wait for them, and write how they ended.

    Args:
        only: names of checks; all by default.

    """
    for module in MODULES:
        import_module(f"splitting.sharded.{module}")
    warnings.simplefilter("ignore")  # those that matter are caught where they are expected
    gc.freeze()  # a collection in a child would read, and so copy, every page of what has been imported
    ended: dict[str, list[int]] = {}
    for name, processes in RUNS.items():
        Path(name).mkdir()
        children: list[int] = []
        for rank in range(processes):
            children.append(os.fork())
            if not children[-1]:
                _run(name, rank, only)
        ended[name] = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    Path("ended.json").write_text(json.dumps(ended))


def _run(name: str, rank: int, only: Sequence[str]) -> None:
    """Run the checks of a run as one of its ranks, and write what happened."""
    if RUNS[name] > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{Path(name).resolve()}/store",
            rank=rank,
            world_size=RUNS[name],
            timeout=timedelta(seconds=60),
        )
    report: dict[str, str] = {}
    for check, runs in CHECKS:
        if name in runs and (not only or check.__name__ in only):
            try:
                check()
                report[check.__name__] = ""
            except BaseException:  # those of torch.distributed.checkpoint are not an Exception
                report[check.__name__] = traceback.format_exc()
            Path(name, f"report-{rank}.json").write_text(json.dumps(report))
            if report[check.__name__]:
                os._exit(1)  # the others wait for this one, and see that it is gone
    os._exit(0)
