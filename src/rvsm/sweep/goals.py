"""What a sweep maximises, and what it keeps about each trial."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rvsm.records import Record, Run
from rvsm.records.values import FRACTION, NON_NEGATIVE, Kind


@dataclass(frozen=True)
class Goal:
    """A number about a finished trial, of which more is better."""

    title: str  # in tables and on axes
    read: Callable[[Record], float | None]  # from the record of its run
    kind: Kind[float]
    factor: float = 100.0  # from the number to the one that is shown
    unit: str = "%"

    def text(self, value: float) -> str:
        """Return a value for people."""
        return f"{self.factor * value:.2f} {self.unit}"


def _accuracy(record: Record) -> float | None:
    """Return the validation accuracy of the network that the run leaves; test images play no part in a sweep."""
    last = record.evaluations[-1] if record.evaluations else None
    return None if last is None else last.accuracy_w if last.accuracy_u is None else last.accuracy_u


GOALS: dict[str, Goal] = {
    "accuracy": Goal("validation accuracy", _accuracy, FRACTION),
    "sparsity": Goal("zeros", lambda r: r.outcome.sparsity if r.outcome else None, FRACTION),
    "multiplications": Goal(
        "multiplications saved", lambda r: r.outcome.multiplications_saved if r.outcome else None, FRACTION
    ),
    "speed": Goal("speed", lambda r: r.outcome.speedup if r.outcome else None, NON_NEGATIVE, 1.0, "×"),
}
"""All goals by name. Speed is measured, which takes some seconds per trial; the others come with every run."""


def check_goals(names: Sequence[str]) -> tuple[str, ...]:
    """Return the goals of a sweep, by default the accuracy alone."""
    for i, name in enumerate(names):
        if name not in GOALS:
            raise ValueError(f"unknown goal {name!r}; choose from {', '.join(GOALS)}")
        if name in names[:i]:
            raise ValueError(f"--goal {name} is given twice")
    return tuple(names) or ("accuracy",)


def measures_of(folder: Path, goals: Sequence[str], *, allow_import: Sequence[str] = ()) -> dict[str, float]:
    """Return the known numbers of a finished run by goal; those that are goals must be known."""
    run = Run(folder)
    if "speed" in goals and run.runtime() is None:
        from rvsm.bench import measure

        measure(folder, allow_import=allow_import)
    record = Record.of_run(run, strict=True)
    found = {name: goal.read(record) for name, goal in GOALS.items()}
    if unknown := [name for name in goals if found[name] is None]:
        raise ValueError(f"{folder}: the run has no number for the goal {unknown[0]!r}; leave out this goal")
    return {name: value for name, value in found.items() if value is not None}


def read_measures(tree: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a trial from a storage, which is not trusted: what is not of its kind is left out."""
    found = {name: goal.kind.at(tree, name) for name, goal in GOALS.items()}
    return {name: value for name, value in found.items() if value is not None}


def described(measures: Mapping[str, float]) -> str:
    """Return the numbers of a trial for one line.

    >>> described({"accuracy": 0.985, "speed": 3.2})
    'validation accuracy 98.50 %, speed 3.20 ×'
    """
    return ", ".join(f"{GOALS[name].title} {GOALS[name].text(value)}" for name, value in measures.items())
