"""Attempts, leases and the sampler, on a study in memory."""

from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from rvsm.sweep.lease import Watch, give_up, lease
from rvsm.sweep.points import ERROR, MOST_DEATHS, POINT, STOPPED, SURPLUS, is_surplus, points
from rvsm.sweep.sampler import Sampler, suggest
from rvsm.sweep.space import Choices, Range, Space

SPACE = Space([Range("o.lr", 0.01, 1.0, log=True), Range("t.epochs", 2, 9), Choices("p.name", ("l0", "l1"))])
FAIL = TrialState.FAIL


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture
def study() -> optuna.Study:
    return optuna.create_study(direction="maximize")


def states(study: optuna.Study, wanted: int | None = None) -> list[tuple[int, str]]:
    return [(point.number, point.state) for point in points(study.get_trials(), wanted)]


class TestPoints:
    def test_an_attempt_that_died_is_tried_again(self, study: optuna.Study) -> None:
        dead, other = study.ask(), study.ask()
        study.tell(dead, state=FAIL)
        assert [p.abandoned for p in points(study.get_trials())] == [True, False]
        study.enqueue_trial({}, user_attrs={POINT: dead.number})
        assert states(study) == [(0, "waiting"), (1, "running")]
        again = study.ask()
        assert not is_surplus(study, again.number, 2)
        study.tell(again, 0.5)
        study.tell(other, 0.6)
        assert states(study) == [(0, "finished"), (1, "finished")]

    def test_of_two_who_try_again_the_first_counts(self, study: optuna.Study) -> None:
        study.tell(study.ask(), state=FAIL)
        for _ in range(2):
            study.enqueue_trial({}, user_attrs={POINT: 0})
        one, other = study.ask(), study.ask()
        assert [is_surplus(study, trial.number, 1) for trial in (one, other)] == [False, True]
        study.tell(one, 0.5)
        assert is_surplus(study, other.number, 1)

    def test_of_new_trials_as_many_as_wanted_count(self, study: optuna.Study) -> None:
        asked = [study.ask() for _ in range(4)]
        surplus = [trial for trial in asked if is_surplus(study, trial.number, 2)]
        assert [trial.number for trial in surplus] == [2, 3]
        for trial in surplus:
            trial.set_user_attr(SURPLUS, True)
            study.tell(trial, state=FAIL)
        more = study.ask()  # the sweep is extended
        assert not is_surplus(study, more.number, 3)
        assert states(study, 3) == [(0, "running"), (1, "running"), (4, "running")]

    def test_the_end_of_trying(self, study: optuna.Study) -> None:
        for death in range(MOST_DEATHS):
            if death:
                study.enqueue_trial({}, user_attrs={POINT: 0})
            assert states(study)[:1] != [(0, "failed")]
            stopped = study.ask()
            stopped.set_user_attr(STOPPED, True)  # by a user, which does not count as a death
            study.tell(stopped, state=FAIL)
            study.enqueue_trial({}, user_attrs={POINT: 0})
            study.tell(study.ask(), state=FAIL)
        (point,) = points(study.get_trials())
        assert (point.state, point.error) == ("failed", "its process died 3 times")

    def test_an_error_that_remains(self, study: optuna.Study) -> None:
        trial = study.ask()
        trial.set_user_attr(ERROR, "the loss became nan")
        study.tell(trial, state=FAIL)
        (point,) = points(study.get_trials())
        assert (point.state, point.error, point.abandoned) == ("failed", "the loss became nan", False)


class TestLease:
    def test_a_number_that_stands_still(self, study: optuna.Study) -> None:
        watch, dead, alive = Watch(grace=30), study.ask(), study.ask()

        def found(now: float) -> list[int]:
            return [trial.number for trial in watch.dead(study.get_trials(states=[TrialState.RUNNING]), now=now)]

        for now in range(0, 31, 5):
            alive.set_user_attr("alive", now)
            assert found(now) == []
        alive.set_user_attr("alive", 31)
        assert found(31) == [dead.number]
        for trial in watch.dead(study.get_trials(states=[TrialState.RUNNING]), now=32):
            give_up(study, trial)
            give_up(study, trial)  # as another process may at the same moment
        assert [trial.state for trial in study.get_trials()] == [FAIL, TrialState.RUNNING]

    def test_signs_of_life(self, study: optuna.Study) -> None:
        trial = study.ask()
        with lease(trial, beat=0.001):
            while study.get_trials()[0].user_attrs.get("alive", 0) < 3:
                pass
        study.tell(trial, 1.0)
        with lease(trial, beat=0.001):  # a trial that was taken over is not an error of this thread
            pass


class TestSampler:
    def values(self, trials: int, *, seed: int = 0, every: int = 100, space: Space = SPACE) -> list[dict[str, Any]]:
        """Try values for a function, with a new process after every so many trials."""
        study = optuna.create_study(direction="maximize")
        found = []
        for number in range(trials):
            if number % every == 0:
                study.sampler = Sampler(space, seed=seed, wanted=trials)
            trial = study.ask()
            values = suggest(trial, space)
            study.tell(trial, -abs(values.get("o.lr", 0.3) - 0.3) - 0.1 * (values["p.name"] == "l0"))
            found.append(values)
        return found

    def test_the_seed_and_the_number_decide(self) -> None:
        whole = self.values(14)
        assert self.values(14, every=3) == whole
        assert self.values(14, seed=1) != whole
        assert len({tuple(one.values()) for one in whole}) == 14

    def test_few_combinations_are_tried_once_each(self) -> None:
        space = Space([Choices("p.name", ("l0", "l1")), Range("t.epochs", 2, 4)])
        found = self.values(6, every=2, space=space)
        assert [tuple(one.values()) for one in found] == [(p, e) for p in ("l0", "l1") for e in (2, 3, 4)]

    def test_values_outside_of_the_space(self, study: optuna.Study) -> None:
        study.sampler = Sampler(SPACE, seed=0, wanted=10)
        study.enqueue_trial({"o.lr": 0.1, "t.epochs": 10**6})
        with pytest.warns(UserWarning, match="out of range"), pytest.raises(ValueError, match=r"t\.epochs = 1000000"):
            suggest(study.ask(), SPACE)
