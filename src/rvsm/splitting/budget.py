"""A target sparsity, in three phases: ramp, hold, heal."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Literal, cast

from torch import Tensor

from rvsm.splitting.allocation import Allocation
from rvsm.splitting.feasibility import require_feasible
from rvsm.splitting.layers import Layer
from rvsm.timing import Profile

Phase = Literal["ramp", "hold", "heal"]
_LATER = ("speedup", "profile")  # options that are newer than the form in which states compare budgets


@dataclass(frozen=True)
class Budget:
    """The final number of zeros, and the schedule that leads to it.

    *Ramp*: the threshold follows the quantile of the weights' magnitudes along s(t) = S·(1 − (1 − t/T)³), and λ follows
    the threshold. *Hold*: λ is fixed; only in this phase is the Lagrangian comparable between steps. *Heal*: the
    support is fixed at exactly the target, the pull is off, and the remaining weights keep training. Training beyond
    ``steps`` stays in the last phase.

    Instead of a number of zeros, the target can be a speed: with ``speedup=5``, the predicted time of the sparse
    network in the runtime is a fifth of the dense network's.

    Args:
        sparsity: the fraction of zeros among the sparsified weights, in [0, 1); with another ``by``, the fraction of
            the multiplications, or of the time, that is saved.
        steps: the number of optimizer steps of the whole training.
        ramp: the fraction of the steps in which the sparsity rises.
        heal: the final fraction of the steps, in which the support is fixed.
        scope: "global" for one threshold over all layers, "layer" for the same sparsity in each.
        by: what is counted, "weights", "flops" (multiplications) or "time" (of a call in the runtime). With "flops", a
            weight that is multiplied c times per example ranks by |w|/√c, which loses the least Σw² for the
            multiplications saved: the thresholds of layers are proportional to √c. With "time", c is what a non-zero
            weight of the layer costs in the runtime. "flops" needs the method's ``example_input``, "time" that or a
            ``profile``.
        normalize: divide weights by the standard deviation of their layer before comparing them across layers.
        floor: the minimum fraction of its largest groups that every layer keeps; one group is always kept. The default
            is 0.5 %, or half of the final density if that is less, and at least one weight per output; but all layers
            together keep no more in this way than half of what the target leaves. Thus no layer dies, at any target.
        every: the number of steps between two evaluations of the quantile; a hundredth of the ramp by default.
        speedup: how many times faster the runtime should run the sparse network than the dense one; give it instead
            of ``sparsity``.
        profile: the times of the layers, as a file written by ``rvsm profile`` or an object from `rvsm.profile`, for
            the machine, the batch size and the number of threads with which the network will run; measured on this
            machine by default, with a batch of 64.

    >>> budget = Budget(sparsity=0.9, steps=100)
    >>> [budget.phase(step) for step in (0, 50, 70, 1000)]
    ['ramp', 'hold', 'heal', 'heal']
    >>> [round(budget.target(step), 3) for step in (0, 25, 50)]
    [0.0, 0.787, 0.9]
    >>> Budget(speedup=5, steps=100).goal
    0.8

    """

    sparsity: float | None = None
    steps: int = cast(int, None)  # needed, but the sparsity before it is not
    ramp: float = 0.5
    heal: float = 0.3
    scope: Literal["global", "layer"] = "global"
    by: Literal["weights", "flops", "time"] = "weights"
    normalize: bool = False
    floor: float | None = None
    every: int | None = None
    speedup: float | None = None
    profile: str | os.PathLike[str] | Profile | None = None

    def __post_init__(self) -> None:
        self._check_goal()
        for name in ("steps", "every"):
            value = getattr(self, name)
            if (name == "steps" or value is not None) and not (_is_integer(value) and value >= 1):
                raise ValueError(f"{name} must be an integer number of optimizer steps ≥ 1 but is {value!r}")
            object.__setattr__(self, name, None if value is None else int(value))
        for name in ("ramp", "heal", *([] if self.floor is None else ["floor"])):
            if not isinstance(getattr(self, name), Real):
                raise TypeError(f"{name} must be a number but is {getattr(self, name)!r}")
            object.__setattr__(self, name, float(getattr(self, name)))
        if not (self.ramp >= 0 and self.heal >= 0 and self.ramp + self.heal <= 1):
            raise ValueError(f"ramp and heal must be ≥ 0 and add up to at most 1 but are {self.ramp} and {self.heal}")
        if self.floor is not None and not 0 <= self.floor < 1:
            raise ValueError(f"floor must be in [0, 1) but is {self.floor}")
        kinds = ("weights", "flops", "time")
        for name, value, choices in (("scope", self.scope, ("global", "layer")), ("by", self.by, kinds)):
            if value not in choices:
                raise ValueError(f"unknown {name} {value!r}; choose from {', '.join(choices)}")

    def _check_goal(self) -> None:
        """Check sparsity, speedup and profile; NumPy numbers become Python's, because their repr in a state differs."""
        if (self.sparsity is None) == (self.speedup is None):
            given = "both are given" if self.speedup is not None else "neither is given"
            raise ValueError(f"a budget needs sparsity=, such as 0.9, or speedup=, such as 5, but {given}")
        if self.sparsity is not None:
            object.__setattr__(self, "sparsity", require_fraction(self.sparsity))
        if self.speedup is not None:
            object.__setattr__(self, "speedup", require_speedup(self.speedup))
            if self.by == "flops":
                raise ValueError("speedup= is a target by='time', not by='flops'; leave out by=, or give sparsity=")
            object.__setattr__(self, "by", "time")
        if self.profile is not None and self.by != "time":
            raise ValueError(f"profile= belongs to a target by='time', or to speedup=, but by is {self.by!r}")
        if self.profile is not None and not isinstance(self.profile, Profile):
            if not isinstance(self.profile, str | os.PathLike):
                raise TypeError(f"profile must be a Profile or the path of its file but is {self.profile!r}")
            object.__setattr__(self, "profile", Profile.load(self.profile))

    def __repr__(self) -> str:
        """Return all options; newer ones only if they are given, since states of older versions are compared with it.

        The profile is not one of them: a state has all of it.
        """
        unset = [name for name in (*_LATER, "sparsity") if getattr(self, name) is None]
        shown = [field.name for field in fields(self) if field.name not in (*unset, "profile")]
        return f"Budget({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def goal(self) -> float:
        """The final fraction of what is counted that is saved; of time, the fraction of the parts of a call."""
        saved = 1 - 1 / self.speedup if self.speedup is not None else cast(float, self.sparsity)
        return saved if self.times is None else self.times.saved_parts(saved)

    @property
    def times(self) -> Profile | None:
        """The profile, if the target is a time and it is known."""
        return self.profile if isinstance(self.profile, Profile) else None

    @property
    def ramp_steps(self) -> int:
        """The number of steps in the ramp."""
        return round(self.ramp * self.steps)

    def phase(self, step: int) -> Phase:
        """Return the phase in which a step (counted from 0) falls."""
        if self.heal > 0 and step >= self.steps - round(self.heal * self.steps):
            return "heal"
        return "ramp" if step < self.ramp_steps else "hold"

    def progress(self, step: int) -> float:
        """Return the progress of the ramp, from 0 to 1."""
        return min(step / self.ramp_steps, 1.0) if self.ramp_steps else 1.0

    def reached(self, step: int) -> float:
        """Return how much of the goal the threshold aims at, from 0 to 1: most of it early in the ramp."""
        return 1 - (1 - self.progress(step)) ** 3

    def target(self, step: int) -> float:
        """Return the fraction that the threshold aims at."""
        return self.goal * self.reached(step)

    def updates_before(self, step: int, *, on_hold: bool = False) -> bool:
        """Return whether the threshold is updated before a step; after the ramp, only with ``on_hold``."""
        if step > self.ramp_steps and not on_hold:
            return False
        every = self.every or max(1, self.ramp_steps // 100)
        return step == self.ramp_steps or step % every == 0

    def is_outrun(self, step: int) -> bool:
        """Return whether this is the step at which training has exceeded the budget's steps by a tenth."""
        return step == self.steps + max(self.steps // 10, 1)

    def has_settled(self, step: int) -> bool:
        """Return whether fixed zeros are those of the target, and the other weights have been trained with them."""
        return step > self.ramp_steps

    def set_thresholds(self, layers: Sequence[Layer], target: float) -> None:
        """Give each layer the λ for which the fraction ``target`` of what is counted is saved."""
        for layer, threshold in zip(layers, self.cutoffs(layers, target), strict=True):
            layer.threshold = threshold

    def cutoffs(self, layers: Sequence[Layer], target: float) -> list[float]:
        """Return the threshold of each layer for which the fraction ``target`` of what is counted is saved."""
        return Allocation(self, layers).cutoffs(target)

    def zeros(self, layers: Sequence[Layer], target: float) -> dict[str, Tensor]:
        """Return a mask of the weights to be zeroed in each layer; their number is exact."""
        return Allocation(self, layers).zeros(target)

    def check(self, layers: Sequence[Layer]) -> None:
        """Raise if the target cannot be met while each layer keeps its floor."""
        require_feasible(Allocation(self, layers))


def require_fraction(sparsity: float, of: str = "") -> float:
    """Return a sparsity that is a fraction in [0, 1), or raise."""
    if isinstance(sparsity, bool) or not isinstance(sparsity, Real):
        raise TypeError(f"sparsity must be a number in [0, 1) but is {sparsity!r}{of}")
    if not 0 <= sparsity < 1:
        hint = f"; for {sparsity:g} % write {sparsity / 100:g}" if 1 < sparsity < 100 else ""
        raise ValueError(f"sparsity must be in [0, 1) but is {sparsity}{of}{hint}")
    return float(sparsity)


def require_speedup(speedup: float) -> float:
    """Return a speedup that is a number > 1, or raise."""
    if isinstance(speedup, bool) or not isinstance(speedup, Real):
        raise TypeError(f"speedup must be a number > 1, such as 5, but is {speedup!r}")
    if not 1 < speedup < float("inf"):
        raise ValueError(
            f"speedup must be {'finite' if speedup == float('inf') else '> 1'} but is {speedup}: it is how many times"
            " faster than the dense network the sparse one should be"
        )
    return float(speedup)


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
