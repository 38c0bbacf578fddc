"""Models with sharded parameters, on real processes: what each of them reports (sharded.py), and how they end."""

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("sharded.py")
CHECKS = [  # without importing it, since that imports FSDP
    (int(processes), name)
    for numbers, name in re.findall(r"^@on\((.*)\)\ndef (\w+)", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
    for processes in numbers.split(", ")
]
LAST = "those_who_lose_a_rank_stop_with_an_error"


def start(processes: int, folder: Path) -> list[int]:
    """Run all checks on so many processes, and return how these have ended."""
    folder.mkdir()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(SCRIPT), str(rank), str(processes), str(folder)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(processes)
    ]
    return [rank.wait(timeout=300) for rank in ranks]


@pytest.fixture(scope="session")
def reported(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Return the folder with the reports of all processes, and with the checkpoints of one, two and four."""

    def fill(folder: Path) -> None:
        from splitting import sharded

        (folder / "1").mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch.distributed.checkpoint: there is one process
            sharded.save_all(folder / "1", lambda model: model)
        ended = {processes: start(processes, folder / str(processes)) for processes in (2, 4)}
        (folder / "ended.json").write_text(json.dumps(ended))

    return once("sharded", fill)


@pytest.mark.parametrize(("processes", "name"), CHECKS)
def test_all_ranks_agree_that(processes: int, name: str, reported: Path) -> None:
    for rank in range(processes):
        if name == LAST and rank > 0:
            continue  # they were killed; see below
        report = json.loads((reported / str(processes) / f"report-{rank}.json").read_text())
        assert name in report, f"rank {rank} did not get to it; see the first check that failed"
        assert not report[name], report[name]


def test_only_killed_ranks_fail(reported: Path) -> None:
    ended = json.loads((reported / "ended.json").read_text())
    killed = -signal.SIGKILL
    assert ended == {"2": [0, 0], "4": [0, killed, killed, killed]}


@pytest.mark.filterwarnings("ignore")  # of torch.distributed.checkpoint: there is one process
def test_one_process_resumes_what_two_have_saved(reported: Path) -> None:
    from splitting import sharded

    sharded.resumed_alike(reported / "2", lambda model: model)


@pytest.mark.filterwarnings("ignore")
def test_a_rank_that_is_killed_while_it_saves_leaves_the_last_checkpoint(reported: Path) -> None:
    from splitting import sharded

    found = sharded.resume(reported / "4" / "rvsm-2", sharded.MAKE["rvsm"], 2, lambda model: model)
    expected = sharded.weights(sharded.uninterrupted(sharded.MAKE["rvsm"]))
    for name, w in sharded.weights(found).items():
        sharded.equal(w, expected[name], name, exact=True)
