"""What a sweep has found so far, as typed values: what is printed and what the page shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna

from rvsm.records.values import NON_NEGATIVE, clean
from rvsm.sweep.definition import Definition
from rvsm.sweep.front import front, knee
from rvsm.sweep.goals import read_measures
from rvsm.sweep.points import Point, points
from rvsm.sweep.worker import MEASURES, SECONDS


@dataclass(frozen=True)
class Trial:
    """A trial; nothing in it is trusted, and what is not of its kind is left out."""

    number: int
    state: str  # finished, pruned, failed, running or waiting
    values: Mapping[str, Any]  # of the parameters
    measures: Mapping[str, float]  # by goal, if it is finished
    minutes: float | None
    error: str
    epochs: int  # of the evaluations that were reported

    @classmethod
    def of(cls, point: Point, definition: Definition) -> "Trial":
        """Read the attempts at a point."""
        last = point.latest
        kept = last.user_attrs.get(MEASURES)
        measures = read_measures(kept) if point.state == "finished" and isinstance(kept, Mapping) else {}
        values = {p.name: last.params[p.name] for p in definition.space if last.params.get(p.name) in p}
        seconds = NON_NEGATIVE.at(last.user_attrs, SECONDS)
        return cls(
            point.number,
            point.state,
            values,
            measures,
            None if seconds is None else seconds / 60,
            clean(point.error),
            last.last_step or 0,
        )

    @property
    def folder(self) -> str:
        """The name of its folder within that of the sweep."""
        return f"trial-{self.number:04d}"


@dataclass(frozen=True)
class Results:
    """All trials of a sweep."""

    definition: Definition
    trials: Sequence[Trial]  # by number
    wanted: int

    @classmethod
    def of(cls, study: optuna.Study, definition: Definition, wanted: int) -> "Results":
        """Read a study."""
        return cls(definition, [Trial.of(p, definition) for p in points(study.get_trials(deepcopy=False))], wanted)

    @property
    def finished(self) -> list[Trial]:
        """The trials with a number for each goal."""
        return [t for t in self.trials if all(goal in t.measures for goal in self.definition.goals)]

    def count(self, state: str) -> int:
        """Return how many trials are in a state."""
        return sum(trial.state == state for trial in self.trials)

    def front(self, goals: Sequence[str] | None = None) -> list[Trial]:
        """Return the trials that no other one dominates in some goals, by default in those of the sweep."""
        chosen = self.definition.goals if goals is None else goals
        known = [t for t in self.finished if all(goal in t.measures for goal in chosen)]
        return [known[i] for i in front([[t.measures[goal] for goal in chosen] for t in known])]

    def knee(self, goals: Sequence[str] | None = None) -> Trial | None:
        """Return the knee of the front; with one goal, that is the first of the best trials."""
        chosen = self.definition.goals if goals is None else goals
        found = self.front(chosen)
        return found[knee([[t.measures[goal] for goal in chosen] for t in found])] if found else None
