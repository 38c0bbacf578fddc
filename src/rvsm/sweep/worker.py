"""A process of a sweep: it takes one trial after another until all are settled."""

import math
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState
from rich.console import Console

from rvsm.config import Config, build, read_config
from rvsm.data import Dataset
from rvsm.files import printable
from rvsm.records import Run
from rvsm.records.values import COUNT, FRACTION
from rvsm.sweep.definition import BASE, Definition
from rvsm.sweep.goals import described, measures_of
from rvsm.sweep.lease import Watch, give_up, lease
from rvsm.sweep.points import ERROR, POINT, STOPPED, SURPLUS, is_surplus, points
from rvsm.sweep.sampler import Sampler, suggest
from rvsm.sweep.space import words
from rvsm.train import Callback, DivergenceError, StoppedError, Trainer, start_or_resume

MEASURES, SECONDS = "measures", "seconds"
"""Attributes of finished attempts: the numbers by goal, and the time of the training."""

BEAT, GRACE = 5.0, 30.0
"""Seconds between two signs of life, and without one until a process counts as dead."""


class Worker:
    """Trains the trials of a sweep together with any number of other processes.

    Args:
        study: the study that all of them share.
        definition: the sweep.
        folder: the folder of the sweep on this machine, which holds the runs.
        wanted: how many trials there should be, of all processes together.
        console: where to print.
        allow_import: the user's own models that may be imported.
        beat: seconds between two signs of life.
        grace: seconds without one until a process counts as dead.

    """

    def __init__(
        self,
        study: optuna.Study,
        definition: Definition,
        folder: Path,
        *,
        wanted: int,
        console: Console,
        allow_import: Collection[str] = (),
        beat: float = BEAT,
        grace: float = GRACE,
    ) -> None:
        self.study, self.definition, self.folder, self.console = study, definition, folder, console
        size = definition.space.size
        self.wanted = wanted if size is None else min(wanted, size)
        # Models that the command names as parameters are allowed; those of a storage were checked when it was read.
        named = [v for p in definition.space if p.name == "model.name" for v in p.values or ()]
        self.allowed = [*allow_import, *map(str, named)]
        self._beat, self._watch = beat, Watch(grace=grace)
        self._data: tuple[str, Dataset] | None = None  # the last data set, which the next trial is likely to need
        study.sampler = Sampler(definition.space, seed=definition.seed, wanted=wanted)
        # Trials report nothing before their ramp ends, so no further warm-up is needed.
        several = len(definition.goals) > 1 or not definition.pruning
        study.pruner = optuna.pruners.NopPruner() if several else optuna.pruners.MedianPruner(n_min_trials=3)

    def work(self) -> int:
        """Take trials until all are settled, wait for those of other processes, and return how many were taken."""
        taken, waiting = 0, False
        while True:
            found = points(self.study.get_trials(deepcopy=False), self.wanted)
            for dead in self._watch.dead(p.running for p in found if p.running is not None):
                give_up(self.study, dead)
                found = points(self.study.get_trials(deepcopy=False), self.wanted)
            if again := next((p for p in found if p.abandoned), None):
                self.study.enqueue_trial(again.attempts[0].params, user_attrs={POINT: again.number})
            elif len(found) >= self.wanted and not any(p.state == "waiting" for p in found):
                if not (others := sum(p.state == "running" for p in found)):
                    return taken
                if not waiting:
                    self._say(f"waiting for {others} {'trial' if others == 1 else 'trials'} of other processes")
                waiting = True
                time.sleep(self._beat)
                continue
            taken += self._take(self.study.ask())

    def _take(self, trial: Trial) -> bool:
        """Try a point, and return whether the attempt counts."""
        if is_surplus(self.study, trial.number, self.wanted):
            trial.set_user_attr(SURPLUS, True)
            self.study.tell(trial, state=TrialState.FAIL)
            return False
        number = COUNT.at(trial.user_attrs, POINT)
        number = trial.number if number is None else number
        folder = self.folder / f"trial-{number:04d}"
        # The lock: a process that was stopped for a while, not killed, may still be in this folder.
        folder.mkdir(parents=True, exist_ok=True)
        with lease(trial, beat=self._beat), FileLock(folder / "sweep.lock"):
            try:
                self._attempt(trial, number, folder)
            except UpdateFinishedTrialError:  # this process was stopped for so long that another one took over
                self._say(f"trial {number}: another process has taken it over")
                return False
            except KeyboardInterrupt:
                self._release(trial, stopped=True)
                raise StoppedError("stopped; run the same command again to continue") from None
            except Exception:  # such as a full disk: it concerns all trials, so this process stops
                self._release(trial)
                raise
        return True

    def _attempt(self, trial: Trial, number: int, folder: Path) -> None:
        values: Mapping[str, Any] = {}
        try:
            values = suggest(trial, self.definition.space)
            config = self._config(number, values)
        except ValueError as error:  # no other attempt could succeed
            self._failed(trial, number, values, error)
            return
        try:
            data = None if (folder / "result.json").exists() else self._dataset(config)
            listeners = [Reporter(trial, folder)] if len(self.definition.goals) == 1 else []
            result = start_or_resume(config, folder, self.console, data, brief=True, callbacks=listeners)
            measures = measures_of(folder, self.definition.goals, allow_import=self.allowed)
        except optuna.TrialPruned as pruned:
            self.study.tell(trial, state=TrialState.PRUNED)
            self._say(f"trial {number}: {pruned}; {shown(values)}")
        except DivergenceError as error:
            self._failed(trial, number, values, error)
        else:
            trial.set_user_attr(MEASURES, measures)
            trial.set_user_attr(SECONDS, result["seconds"])
            self.study.tell(trial, [measures[goal] for goal in self.definition.goals])
            self._say(f"trial {number}: {described(measures)}; {shown(values)}")

    def _release(self, trial: Trial, *, stopped: bool = False) -> None:
        """Leave the point to another attempt, at once rather than after the grace period."""
        with suppress(UpdateFinishedTrialError):
            if stopped:
                trial.set_user_attr(STOPPED, True)
            self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    def _config(self, number: int, values: Mapping[str, Any]) -> Config:
        flags = [*words(values), f"--name={self.definition.name}-{number}"]
        return read_config(self.folder / BASE, flags, allow_import=self.allowed)

    def _dataset(self, config: Config) -> Dataset:
        key = repr(config.data.table())
        if self._data is None or self._data[0] != key:
            self._data = key, build.dataset(config)
        return self._data[1]

    def _failed(self, trial: Trial, number: int, values: Mapping[str, Any], error: Exception) -> None:
        trial.set_user_attr(ERROR, printable(str(error)))
        self.study.tell(trial, state=TrialState.FAIL)
        self._say(f"trial {number}: {error}; {shown(values)}", "yellow")

    def _say(self, text: str, style: str | None = None) -> None:
        self.console.print(printable(text), style=style, highlight=False, markup=False, soft_wrap=True)


class Reporter(Callback):
    """Reports the validation accuracy of the sparse network after each epoch, and stops a trial without prospects.

    Nothing is reported before the ramp of the sparsity ends: until then, the networks are almost dense, and the best
    are not those that will be best with few weights. Without a ramp, nothing is reported in the first half.
    """

    def __init__(self, trial: Trial, folder: Path) -> None:
        self.trial, self.folder = trial, folder
        self._hopeless = ""

    def on_start(self, trainer: Trainer) -> None:
        """Report again what an earlier attempt has reported, if the run is resumed."""
        if trainer.step:
            for record in Run(self.folder).metrics():
                self._report(trainer, record)

    def on_record(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        """Report an evaluation."""
        if self._report(trainer, record) and trainer.step < trainer.steps and self.trial.should_prune():
            epochs = trainer.config.training.epochs
            self._hopeless = f"stopped after epoch {round(trainer.epoch)} of {epochs}, since others were better by then"

    def on_epoch(self, trainer: Trainer) -> None:
        """Stop, after the checkpoint of the epoch, from which the run could be resumed."""
        if self._hopeless:
            raise optuna.TrialPruned(self._hopeless)

    def _report(self, trainer: Trainer, record: Mapping[str, Any]) -> bool:
        epoch, phase = COUNT.at(record, "epoch"), record.get("phase")
        sparse, dense = (FRACTION.at(record, copy, "accuracy") for copy in "uw")
        accuracy = dense if sparse is None else sparse
        early = phase == "ramp" or (phase is None and (epoch or 0) <= math.ceil(trainer.config.training.epochs / 2))
        if epoch is None or accuracy is None or early:
            return False
        self.trial.report(accuracy, epoch)
        return True


def shown(values: Mapping[str, Any]) -> str:
    """Return the values of a trial for one line.

    >>> shown({"penalty.name": "l0", "budget.sparsity": 0.9312345})
    'penalty.name l0, budget.sparsity 0.93123'
    """
    return ", ".join(f"{name} {f'{v:.5g}' if isinstance(v, float) else v}" for name, v in values.items())
