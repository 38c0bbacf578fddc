"""Several processes in one sweep: exactly as many trials as wanted, and none is lost with a process that is killed."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

from rvsm.records import Run

WORDS = ["--param", "budget.sparsity=0.05:0.15", "--param", "penalty.name=l0,tl1", "--model.width", "4"]
LONG = [*WORDS, "--training.epochs", "6", "--training.batch", "128"]

Sweeper = Callable[..., list[dict[str, Any]]]


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


def test_two_at_once_and_one_that_is_killed(sweeper: Sweeper, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    words = [*LONG, "--trials", "4", "--no-pruning"]

    # Two processes: each trial is trained once, by one of them.
    answers = sweeper(folder=str(whole), commands=[words, words])
    assert [answer["status"] for answer in answers] == [0, 0], answers
    printed = [line for answer in answers for line in answer["printed"].splitlines() if line.startswith("trial ")]
    assert sorted(line.partition(":")[0] for line in printed) == [f"trial {n}" for n in range(4)]
    assert len(complete(whole)) == 4
    folders = [folder for folder in (whole / "sweeps/run").glob("trial-*") if (folder / "config.toml").exists()]
    assert Counter(Run(folder).status for folder in folders) == {"finished": 4}

    # One is killed in the middle of its first trial; another one joins, wants one more, and finishes all.
    (victim,) = sweeper(folder=str(killed), commands=[words], kill="sweeps/run/trial-0000/checkpoints/*.safetensors")
    assert victim["status"] == -signal.SIGKILL
    assert not (killed / "sweeps/run/trial-0000/result.json").exists()
    (heir,) = sweeper(folder=str(killed), commands=[["sweeps/run", "--trials", "5"]])
    assert heir["status"] == 0, heir
    assert "trial-0000: continuing from step" in heir["printed"]
    assert [t.state.name for t in trials(killed) if t.user_attrs.get("point", t.number) == 0] == ["FAIL", "COMPLETE"]

    # The values depend only on the seed and the order, and a resumed training ends as if it had never been stopped.
    assert complete(killed)[:4] == complete(whole)
    assert len(complete(killed)) == 5
