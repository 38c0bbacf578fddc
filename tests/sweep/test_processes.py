"""Several processes in one sweep: exactly as many trials as wanted, and none is lost with a process that is killed."""

import signal
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import optuna

import commands
from processes import Process
from rvsm.records import Run

WORDS = ["--param", "budget.sparsity=0.05:0.15", "--param", "penalty.name=l0,tl1", "--model.width", "4"]
WORDS += ["--training.epochs", "2", "--training.batch", "256"]


def sweep(folder: Path, words: Sequence[str], **options: Any) -> Process:
    return Process(partial(commands.sweep, words, **options), folder=folder)


def trials(folder: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="run", storage=f"sqlite:///{folder}/sweeps/run/sweep.db").trials


def complete(folder: Path) -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Return the values and the numbers of the trials that are complete, in the order of their points."""
    found = {
        trial.user_attrs.get("point", trial.number): (trial.params, trial.user_attrs["measures"])
        for trial in trials(folder)
        if trial.state is optuna.trial.TrialState.COMPLETE
    }
    return [found[number] for number in sorted(found)]


def test_two_at_once_and_one_that_is_killed(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    words = [*WORDS, "--trials", "3", "--no-pruning"]

    # Two processes: each trial is trained once, by one of them.
    both = [process.ended() for process in [sweep(whole, words), sweep(whole, words)]]
    assert [one.status for one in both] == [0, 0], both
    printed = [line for one in both for line in one.printed.splitlines() if line.startswith("trial ")]
    assert sorted(line.partition(":")[0] for line in printed) == [f"trial {n}" for n in range(3)]
    assert len(complete(whole)) == 3
    folders = [folder for folder in (whole / "sweeps/run").glob("trial-*") if (folder / "config.toml").exists()]
    assert Counter(Run(folder).status for folder in folders) == {"finished": 3}

    # One is killed in the middle of its first trial; another one joins, wants one more, and finishes all.
    victim = sweep(killed, words, minutes=0, within="_evaluate", kill_at=0).ended()
    assert victim.status == -signal.SIGKILL, victim
    assert not (killed / "sweeps/run/trial-0000/result.json").exists()
    heir = sweep(killed, ["sweeps/run", "--trials", "4"], grace=0.5).ended()
    assert heir.status == 0, heir
    assert "trial-0000: continuing from step" in heir.printed
    assert [t.state.name for t in trials(killed) if t.user_attrs.get("point", t.number) == 0] == ["FAIL", "COMPLETE"]

    # The values depend only on the seed and the order, and a resumed training ends as if it had never been stopped.
    assert complete(killed)[:3] == complete(whole)
    assert len(complete(killed)) == 4
