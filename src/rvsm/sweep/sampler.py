"""The choice of values: Optuna's TPE, or all combinations in turn if there are few."""

from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, Trial

from rvsm.sweep.points import points
from rvsm.sweep.space import Choices, Parameter, Space


class Sampler(BaseSampler):
    """Draws the values of a point from the seed, the number of points before it, and what is finished; nothing else.

    One process thus tries the same values each time, however often it is stopped and started again.

    Args:
        space: the parameters.
        seed: the seed.
        wanted: how many trials there will be; if all combinations can be tried, each is tried once.

    """

    def __init__(self, space: Space, *, seed: int, wanted: int) -> None:
        self._space, self._seed = space, seed
        self._all = space.size is not None and space.size <= wanted
        self._made: tuple[int, TPESampler] | None = None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that are drawn together."""
        if self._all:
            return distributions(self._space)
        return self._tpe(study, trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return values of parameters that are drawn together."""
        if self._all:
            return self._space.combination(_before(study, trial))
        return self._tpe(study, trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of a parameter that is drawn on its own."""
        return self._tpe(study, trial).sample_independent(study, trial, param_name, param_distribution)

    def _tpe(self, study: Study, trial: FrozenTrial) -> TPESampler:
        """Return the sampler of a trial; it keeps its random numbers from one parameter to the next."""
        if self._made is None or self._made[0] != trial.number:
            seed = np.random.SeedSequence((self._seed % 2**64, _before(study, trial))).generate_state(1)[0]
            self._made = trial.number, TPESampler(seed=int(seed))
        return self._made[1]


def _before(study: Study, trial: FrozenTrial) -> int:
    """Return how many points come before a trial; unlike its number, this does not depend on who died."""
    return sum(point.number < trial.number for point in points(study.get_trials(deepcopy=False)))


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the parameters as Optuna describes them."""
    return {parameter.name: _distribution(parameter) for parameter in space}


def suggest(trial: Trial, space: Space) -> dict[str, Any]:
    """Return the values of a trial, which are drawn unless the storage already has them.

    Values that the storage has, for a trial that is tried again, are not trusted.
    """
    values: dict[str, Any] = {}
    for parameter in space:
        if isinstance(parameter, Choices):
            value: Any = trial.suggest_categorical(parameter.name, parameter.words)
        elif parameter.whole:
            value = trial.suggest_int(parameter.name, int(parameter.low), int(parameter.high), log=parameter.log)
        else:
            value = trial.suggest_float(parameter.name, parameter.low, parameter.high, log=parameter.log)
        if value not in parameter:
            raise ValueError(f"the storage has {parameter.name} = {value!r} for a trial, but the sweep has {parameter}")
        values[parameter.name] = value
    return values


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Choices):
        return CategoricalDistribution(parameter.words)
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
