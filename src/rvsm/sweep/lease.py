"""Which processes are alive: each counts a number upwards in its running trial, and the others watch it.

A number that stands still for a while belongs to a process that died. The watcher uses only its own clock, so the
clocks of the machines need not agree.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from threading import Event, Thread

import optuna
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, Trial
from sqlalchemy.exc import SQLAlchemyError

ALIVE = "alive"
"""The attribute that is counted upwards."""


@contextmanager
def lease(trial: Trial, *, beat: float) -> Iterator[None]:
    """Show in the storage that the process is alive, every ``beat`` seconds, for the duration of a block."""
    ended = Event()

    def keep() -> None:
        for number in count():
            with suppress(OptunaError, SQLAlchemyError):  # a storage out of reach for a moment, or a trial taken over
                trial.set_user_attr(ALIVE, number)
            if ended.wait(beat):
                return

    thread = Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Watch:
    """Finds the running trials whose processes died.

    Args:
        grace: after how many seconds without a sign of life a process counts as dead.

    """

    def __init__(self, *, grace: float) -> None:
        self.grace = grace
        self._seen: dict[int, tuple[object, float]] = {}  # by trial: the last number, and when it was first seen

    def dead(self, running: Iterable[FrozenTrial], *, now: float | None = None) -> list[FrozenTrial]:
        """Return those of the running trials whose number has not changed for too long."""
        moment = time.monotonic() if now is None else now
        seen = {}
        found = []
        for trial in running:
            sign = trial.user_attrs.get(ALIVE)
            last, since = self._seen.get(trial.number, (sign, moment))
            seen[trial.number] = (sign, since if sign == last else moment)
            if sign == last and moment - since > self.grace:
                found.append(trial)
        self._seen = seen
        return found


def give_up(study: optuna.Study, trial: FrozenTrial) -> None:
    """Mark the attempt of a process that died as failed, unless another process has done so."""
    with suppress(OptunaError, ValueError):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)
