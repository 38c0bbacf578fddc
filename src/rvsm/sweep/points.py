"""The points of a sweep: combinations of values, each with one attempt or several.

Optuna has a trial for each attempt. An attempt whose process died is FAIL; a later one with the same values carries on
in the same folder. For users, all attempts at a point are one trial, which has the number of the first.

The order of Optuna's trials is the same for all processes, also for those that create trials at the same moment. It
decides without any further lock: of the new trials, the first N count; of several attempts at a point, the first
counts. All others are surplus.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import optuna
from optuna.trial import FrozenTrial, TrialState

from rvsm.records.values import COUNT, LINE

POINT, SURPLUS, STOPPED, ERROR = "point", "surplus", "stopped", "error"
"""Attributes of attempts: which point is tried again; whether it does not count; whether its process was asked to stop;
why no other attempt could succeed."""

MOST_DEATHS = 3
"""A point at which so many processes died, perhaps for lack of memory, is not tried again."""

_DONE = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Point:
    """A combination of values, and the attempts at it in their order."""

    attempts: Sequence[FrozenTrial]

    @property
    def number(self) -> int:
        """The number that users see."""
        return self.attempts[0].number

    @property
    def settled(self) -> FrozenTrial | None:
        """The attempt that is the last word, if there is one: complete, pruned, or failed for good."""
        for attempt in self.attempts:
            if attempt.state in _DONE or (attempt.state is TrialState.FAIL and ERROR in attempt.user_attrs):
                return attempt
        deaths = [a for a in self.attempts if a.state is TrialState.FAIL and not a.user_attrs.get(STOPPED)]
        return deaths[-1] if len(deaths) >= MOST_DEATHS else None

    @property
    def running(self) -> FrozenTrial | None:
        """The first attempt that runs, if it is not settled."""
        running = (a for a in self.attempts if a.state is TrialState.RUNNING)
        return None if self.settled else next(running, None)

    @property
    def abandoned(self) -> bool:
        """Whether somebody should try it again."""
        return self.settled is None and all(a.state is TrialState.FAIL for a in self.attempts)

    @property
    def latest(self) -> FrozenTrial:
        """The attempt that shows how it stands."""
        return self.settled or self.running or self.attempts[-1]

    @property
    def state(self) -> str:
        """The state in one word: finished, pruned, failed, running or waiting."""
        if (settled := self.settled) is not None:
            return {TrialState.COMPLETE: "finished", TrialState.PRUNED: "pruned"}.get(settled.state, "failed")
        return "running" if self.running else "waiting"

    @property
    def error(self) -> str:
        """Why it failed, if it did."""
        if self.state != "failed":
            return ""
        return LINE.at(self.latest.user_attrs, ERROR) or f"its process died {MOST_DEATHS} times"


def points(trials: Iterable[FrozenTrial], wanted: int | None = None) -> list[Point]:
    """Return the points by number, without what is surplus: at most as many as wanted."""
    by_point: dict[int, list[FrozenTrial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.user_attrs.get(SURPLUS):
            continue
        again = COUNT.at(trial.user_attrs, POINT)
        if again is None:
            by_point[trial.number] = [trial]
        elif again in by_point:
            by_point[again].append(trial)
    return [Point(attempts) for attempts in by_point.values()][:wanted]


def is_surplus(study: optuna.Study, number: int, wanted: int) -> bool:
    """Return whether an attempt that has just begun does not count."""
    for point in points(study.get_trials(deepcopy=False), wanted):
        if number in [attempt.number for attempt in point.attempts]:
            return point.settled is not None or point.running is None or point.running.number != number
    return True
