"""Kill -9 at random moments: what is resumed ends bit for bit as if it had never been stopped."""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rvsm.records import Run

WORDS = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--augment.crop", "1"]
METHODS = {
    "rvsm": ["--budget.sparsity", "0.3", "--training.label_smoothing", "0.1"],
    "printed": ["--penalty.lam", "3e-5", "--method.beta", "0.1", "--method.order", "printed"],
    "admm": ["--method.name", "admm", "--method.rho", "0.01", "--method.sparsity", "0.3"],
    "magnitude": ["--method.name", "magnitude", "--budget.sparsity", "0.3", "--optimizer.name", "adamw"],
}
TIMINGS = ("images_per_second", "seconds", "time_left", "times", "memory")


def without_timings(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in TIMINGS}


class Ending:
    """All that a finished run leaves, apart from timings."""

    def __init__(self, folder: Path) -> None:
        run = Run(folder)
        assert run.status == "finished"
        self.weights: dict[str, Tensor] = run.weights()
        self.metrics = [without_timings(record) for record in run.metrics()]
        self.result = without_timings(run.result() or {})

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Ending)
        assert list(self.weights) == list(other.weights)
        for name, w in self.weights.items():
            assert torch.equal(w, other.weights[name]), name
        assert self.metrics == other.metrics
        assert self.result == other.result
        return True

    __hash__ = None  # type: ignore[assignment]


Unbroken = Callable[..., tuple[Ending, int]]


WRITING = ("save", "append", "finish", "create")


@pytest.fixture(scope="session")
def unbroken(forks: Callable[..., dict[str, Any]], once: Callable[..., Path]) -> Unbroken:
    """Return what gives a run that was never stopped, and the number of its calls, all or those within a function."""

    def made(method: str, within: str | None = None) -> tuple[Ending, int]:
        def fill(folder: Path) -> None:
            counting = {"counted": folder / "calls", "names": (None, "_evaluate", *WRITING)}
            answer = forks(words=words(method, folder / "run"), minutes=0, **counting)
            assert answer["status"] == 0, answer

        folder = once(f"unbroken-{method}", fill)
        return Ending(folder / "run"), dict(json.loads((folder / "calls").read_text()))[within]

    return made


def words(method: str, folder: Path) -> list[str]:
    return ["train", "--run", str(folder), *WORDS, *METHODS[method]]


def resumed(forks: Callable[..., dict[str, Any]], folder: Path, method: str, **order: Any) -> dict[str, Any]:
    """Resume; start where the kill came before there was a run."""
    there = (folder / "config.toml").exists()
    return forks(words=["resume", str(folder)] if there else words(method, folder), **order)


@pytest.mark.parametrize("number", range(14))
def test_killed_anywhere(forks: Any, unbroken: Unbroken, tmp_path: Path, number: int) -> None:
    chance = random.Random(number)
    method = chance.choice(list(METHODS))
    expected, calls = unbroken(method)
    folder = tmp_path / "run"
    # Checkpoints after every step, or only after an epoch.
    minutes = chance.choice([0, 10])
    killed = forks(words=words(method, folder), minutes=minutes, kill_at=chance.randrange(calls))
    assert killed["killed"] or killed["status"] == 0
    answer = resumed(forks, folder, method)
    assert answer["status"] == 0, answer
    assert Ending(folder) == expected


@pytest.mark.parametrize("within", WRITING)
@pytest.mark.parametrize("number", range(2))
def test_killed_while_writing(forks: Any, unbroken: Unbroken, tmp_path: Path, within: str, number: int) -> None:
    chance = random.Random(f"{within} {number}")
    expected, calls = unbroken("rvsm", within)
    folder = tmp_path / "run"
    killed = forks(words=words("rvsm", folder), minutes=0, within=within, kill_at=chance.randrange(calls))
    assert killed["killed"]
    answer = resumed(forks, folder, "rvsm")
    assert answer["status"] == 0, answer
    assert "damaged" not in answer["printed"]  # a kill leaves whole files only
    assert not [file for file in folder.rglob(".*") if file.is_file()]
    assert Ending(folder) == expected


def test_killed_again_and_again(forks: Any, unbroken: Unbroken, tmp_path: Path) -> None:
    chance = random.Random(0)
    expected, calls = unbroken("rvsm")
    folder = tmp_path / "run"
    deaths = 0
    for _ in range(12):
        answer = resumed(forks, folder, "rvsm", minutes=0, kill_at=calls // 5 + chance.randrange(calls // 5))
        if answer["status"] == 0:
            break
        assert answer["killed"], answer
        deaths += 1
    else:
        assert resumed(forks, folder, "rvsm")["status"] == 0
    assert deaths >= 3
    assert Ending(folder) == expected


def test_killed_before_the_first_checkpoint(forks: Any, unbroken: Unbroken, tmp_path: Path) -> None:
    expected, _ = unbroken("rvsm")
    folder = tmp_path / "run"
    killed = forks(words=words("rvsm", folder), within="train_step", kill_at=30)
    assert killed["killed"]
    assert Run(folder).checkpoints() == []
    answer = resumed(forks, folder, "rvsm")
    assert f"{folder}: continuing from step 0 of 8\n" in answer["printed"]
    assert Ending(folder) == expected


def test_killed_at_the_end_of_each_epoch(forks: Any, unbroken: Unbroken, tmp_path: Path) -> None:
    # After the last step of an epoch, before the look at the validation images is recorded.
    expected, calls = unbroken("rvsm", "_evaluate")
    for number in range(2):
        folder = tmp_path / f"run-{number}"
        killed = forks(words=words("rvsm", folder), minutes=0, within="_evaluate", kill_at=number * calls // 2)
        assert killed["killed"]
        assert resumed(forks, folder, "rvsm")["status"] == 0
        assert Ending(folder) == expected


def test_what_is_lost_is_at_most_the_work_since_the_last_checkpoint(forks: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert forks(words=words("rvsm", folder), within="_evaluate", kill_at=0)["killed"]  # no checkpoint: epoch 1 is lost
    assert Run(folder).checkpoints() == []
    assert forks(words=["resume", str(folder)], within="on_record", kill_at=0, minutes=0)["killed"]
    answer = forks(words=["resume", str(folder)])  # now there was one after each step but the last of the epoch
    assert "continuing from step 3 of 8\n" in answer["printed"]
