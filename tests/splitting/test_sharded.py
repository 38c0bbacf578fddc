"""Models with sharded parameters, on real processes: what each of them reports (sharded/), and how they end."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Process
from splitting.sharded.runs import MODULES, RUNS, main

CHECKS = [  # read, not imported, since that imports FSDP
    (run, name)
    for module in MODULES
    for runs, name in re.findall(
        r"^@on\((.*)\)\n(?:@.*\n)*def (\w+)",
        Path(__file__).with_name("sharded").joinpath(f"{module}.py").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    for run in re.findall(r"\w+", runs)
]


@pytest.fixture(scope="session")
def reported(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Return the folder with the reports of all processes."""

    def fill(folder: Path) -> None:
        ended = Process(main, folder=folder).ended(timeout=600)
        assert ended.status == 0, ended.printed

    return once("sharded", fill)


@pytest.mark.parametrize(("run", "name"), CHECKS)
def test_all_ranks_agree_that(run: str, name: str, reported: Path) -> None:
    survivors = 1 if name == "those_who_lose_a_rank_stop_with_an_error" else RUNS[run]
    for rank in range(survivors):
        report = json.loads((reported / run / f"report-{rank}.json").read_text())
        assert name in report, f"rank {rank} did not get to it; see the first check that failed"
        assert not report[name], report[name]


def test_only_killed_ranks_fail(reported: Path) -> None:
    ended = json.loads((reported / "ended.json").read_text())
    killed = -signal.SIGKILL
    assert ended == {"one": [0], "two": [0, 0], "four": [0, killed, killed, killed], "last": [0]}
