"""A target sparsity, in three phases: ramp, hold, heal."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, floor, isfinite, log10, sqrt
from numbers import Integral, Real
from typing import Literal, cast

import torch
from torch import Tensor

from rvsm.splitting.costs import Costs
from rvsm.splitting.layers import Layer, require_finite
from rvsm.splitting.magnitudes import Magnitudes, Population, survey
from rvsm.splitting.quantiles import Found
from rvsm.splitting.selection import (
    Candidates,
    candidates,
    costs_of,
    counts_for,
    cutoffs,
    removals,
    together,
)
from rvsm.splitting.units import Unit, units
from rvsm.timing import Curve, Profile

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

    @torch.no_grad()
    def cutoffs(self, layers: Sequence[Layer], target: float) -> list[float]:
        """Return the threshold of each layer for which the fraction ``target`` of what is counted is saved."""
        all_units = units(layers)
        found = self._candidates(all_units, target)
        counts, common = self._counts(all_units, found, target)
        thresholds = {
            layer.name: threshold * each.population.here.scale
            for unit, each, threshold in zip(all_units, found, cutoffs(found, counts, common), strict=True)
            for layer in unit.layers
        }
        return [thresholds[layer.name] for layer in layers]

    @torch.no_grad()
    def zeros(self, layers: Sequence[Layer], target: float) -> dict[str, Tensor]:
        """Return a mask of the weights to be zeroed in each layer; their number is exact."""
        all_units = units(layers)
        counts, _ = self._counts(all_units, self._candidates(all_units, target), target)
        # Once more without the scales: two magnitudes that differ may be equal after a division.
        chosen = removals(survey([_magnitudes(unit) for unit in all_units]), counts)
        masks: dict[str, Tensor] = {}
        for unit, removal in zip(all_units, chosen, strict=True):
            masks.update(unit.spread(removal.mask(unit.magnitudes())))
        return masks

    @torch.no_grad()
    def check(self, layers: Sequence[Layer]) -> None:
        """Raise if the target cannot be met while each layer keeps its floor."""
        all_units = units(layers)
        found = self._candidates(all_units, self.goal)
        floor = "the default floor" if self.floor is None else f"floor={self.floor}"
        given = [unit.first.sparsity for unit in all_units]
        uniform = self.goal if self.scope == "layer" and self.by != "time" else 0.0
        own = [uniform if each is None else each for each in given]
        aims = [share * c.population.total for share, c in zip(own, found, strict=True)]
        counts = counts_for([c.population for c in found], aims)
        # The most restrictive layer first: a sparsity that the error calls feasible is then feasible for all.
        for i in sorted(range(len(found)), key=lambda i: found[i].most / found[i].population.total):
            if counts[i] > found[i].limit:
                raise ValueError(
                    f"sparsity {own[i]} of {all_units[i].name} is not feasible: with {floor} and at least one group"
                    f" kept, the largest is {found[i].most / found[i].population.total:.6g}; lower the sparsity or the"
                    " floor, or exclude the layer"
                )
        if (self.scope == "layer" and self.by != "time") or self._is_feasible(all_units):
            return
        least, most = self._limits(all_units)
        wanted = f"sparsity {self.sparsity}" if self.speedup is None else f"speedup {self.speedup:g}"
        wanted = f"saving {self.sparsity} of the time" if self.by == "time" and self.speedup is None else wanted
        shown = [f"{saved:.6g}" for saved in (least, most)]
        if self.speedup is not None:
            shown = [f"{_rounded_up(1 / (1 - least))}", f"{_rounded_down(1 / (1 - most))}"]
        if None not in given:
            raise ValueError(
                f"{wanted} is not feasible: every layer has a sparsity of its own, and together they result in"
                f" {shown[0]}; leave at least one layer without"
            )
        raise ValueError(
            f"{wanted} is not feasible: with {floor}, at least one group kept in each layer and the overrides, it must"
            f" be between {shown[0]} and {shown[1]}; change the target, the floor or the overrides"
        )

    def _is_feasible(self, all_units: Sequence[Unit]) -> bool:
        least, most, granularity, total = self._extremes(all_units)
        return least - granularity <= self.goal * total < most + granularity

    def _limits(self, all_units: Sequence[Unit]) -> tuple[float, float]:
        """Return the least and the largest fraction that can be saved: where default floors depend on it, a search."""
        least, most, _, total = self._extremes(all_units)
        lowest, highest = (1 - self._costs.left((total - saved) / total) for saved in (least, most))
        if self.floor is None and highest > lowest:
            low, high = lowest, 1.0
            for _ in range(20):
                middle = (low + high) / 2
                feasible = replace(self, sparsity=middle, speedup=None)._is_feasible(all_units)
                low, high = (middle, high) if feasible else (low, middle)
            highest = low
        return lowest, highest

    def _extremes(self, all_units: Sequence[Unit]) -> tuple[float, float, float, float]:
        """Return how much must be saved, how much can be, how much one group is worth, and what there is in all."""
        found = self._candidates(all_units, self.goal)
        pairs = [(c, unit.first.sparsity) for c, unit in zip(found, all_units, strict=True)]
        least = sum(c.value(c.population.total * each) for c, each in pairs if each is not None)
        most = least + sum(c.value(c.most) for c, each in pairs if each is None)
        granularity = max(c.value(c.population.total) / c.population.total * c.population.cost for c in found)
        return least, most, granularity, self._costs.whole([c.population.total for c in found])

    def _counts(
        self, all_units: Sequence[Unit], found: Sequence[Candidates], target: float
    ) -> tuple[list[int], list[Found | None]]:
        """Return how many groups of each unit to remove for the fraction ``target``.

        Layers with their own sparsity follow the same ramp to it; the other layers make up the rest. For these, also
        return what is at their common threshold.
        """
        progress = self._progress(target)
        counts, common = [0] * len(found), cast("list[Found | None]", [None] * len(found))
        free = [i for i, unit in enumerate(all_units) if unit.first.sparsity is None and self.scope == "global"]
        alone = [i for i in range(len(found)) if i not in free]
        groups = [found[i].population for i in alone]
        own = [all_units[i].first.sparsity for i in alone]
        whole = target * self._costs.whole([c.population.total for c in found])
        uniform = self._uniform([found[i] for i in alone], own, progress, target, whole)
        shares = [uniform if share is None else progress * share for share in own]
        aims = [share * each.total for share, each in zip(shares, groups, strict=True)]
        for i, count in zip(alone, taken := counts_for(groups, aims), strict=True):
            counts[i] = count
        if free:
            pool = [found[i] for i in free]
            removed = zip(alone, costs_of(groups, taken), strict=True)
            missing = whole - sum(found[i].value(cost) for i, cost in removed)
            most = sum(c.value(c.most) for c in pool)
            taken_by_all, at = together(pool, min(max(missing, 0.0), most))
            for i, count, there in zip(free, taken_by_all, at, strict=True):
                counts[i], common[i] = count, there
        return [min(count, c.limit) for count, c in zip(counts, found, strict=True)], common

    def _uniform(
        self, layers: Sequence[Candidates], own: Sequence[float | None], progress: float, target: float, whole: float
    ) -> float:
        """Return the sparsity that all layers without their own have, if the scope is the layer.

        For weights and multiplications it is the target. For time, it is the one with which the whole network meets it.
        """
        if self.by != "time":
            return target
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            shares = [middle if share is None else progress * share for share in own]
            saved = sum(c.value(min(s * c.population.total, c.most)) for c, s in zip(layers, shares, strict=True))
            low, high = (low, middle) if saved >= whole else (middle, high)
        return high

    def _candidates(self, all_units: Sequence[Unit], target: float) -> list[Candidates]:
        """Return the groups of each unit by magnitude, with their cost and how many can be removed.

        Along the ramp, the worth of zeros goes from a straight line to what was measured. A layer with a few zeros is
        no faster, so a target that is a little time would otherwise need very many zeros at once.
        """
        populations = survey([_magnitudes(unit, self._scale(unit), self._costs.counted) for unit in all_units])
        for unit, groups in zip(all_units, populations, strict=True):
            if not isfinite(groups.largest):
                for layer in unit.layers:
                    require_finite(layer)
        worths = [self._costs.worth(unit) for unit in all_units]
        kept = self._floors(all_units, populations, worths)
        ahead = 1 - self._progress(target)
        return candidates(populations, kept, [None if each is None else each.straightened(ahead) for each in worths])

    def _progress(self, target: float) -> float:
        return target / self.goal if self.goal else 1.0  # a target of zero has no ramp

    def _floors(
        self, all_units: Sequence[Unit], populations: Sequence[Population], worths: Sequence[Curve | None]
    ) -> list[int]:
        """Return the minimum number of groups that each unit keeps."""
        counts = [groups.size for groups in populations]
        if self.floor is not None:
            return [max(1, ceil(self.floor * n - 1e-9)) for n in counts]  # 0.07 × 100 is a little more than 7
        # In a very sparse network, layers compete for few places: a layer whose weights have shrunk a little loses more
        # of them, shrinks further, and would die. Layers with their own sparsity do not compete.
        alone = [self.scope == "layer" or unit.first.sparsity is not None for unit in all_units]
        costs = [
            unit.weights * unit.cost(self._costs.counted) if worth is None else worth.y[-1]
            for unit, worth in zip(all_units, worths, strict=True)
        ]
        density = max(1 - self.goal * (self._costs.whole(costs) / sum(costs)), 0.0)
        wanted = [
            0.0 if own else max(min(0.005, density / 2) * n, unit.first.outputs if unit.first.elementwise else 1)
            for unit, n, own in zip(all_units, counts, alone, strict=True)
        ]
        taken = sum(cost * w / n for cost, w, n in zip(costs, wanted, counts, strict=True))
        left = density * sum(cost for cost, own in zip(costs, alone, strict=True) if not own)
        fits = min(1.0, left / 2 / taken) if taken else 1.0
        return [max(1, int(fits * w)) for w in wanted]

    @property
    def _costs(self) -> Costs:
        return Costs(self.by, self.times)

    def _scale(self, unit: Unit) -> float:
        """Return the divisor of a unit's magnitudes when they are compared with those of other units."""
        return (unit.deviation() if self.normalize else 1.0) * sqrt(unit.cost(self._costs.price))


def _magnitudes(unit: Unit, scale: float = 1.0, cost: Callable[[Layer], float] = lambda _: 1.0) -> Magnitudes:
    """Return the magnitudes of a unit's groups on this process: the one place where a target reads weights."""
    costs = unit.costs(cost)
    if unit.first.elementwise:  # no copies: views of the weights in their memory order, since any order will do
        w = unit.first.w
        blocks = [w] if w.is_contiguous() else [block for (block,) in unit.first.blocks(w)]
        return Magnitudes(blocks, scale, costs.view(1).numpy(), unit.ranks)
    magnitudes = unit.magnitudes()
    costs = costs.view(1) if costs.numel() == 1 else costs.expand_as(magnitudes).flatten()
    return Magnitudes([magnitudes], scale, costs.cpu().numpy(), unit.ranks)


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


def _rounded_down(number: float) -> float:
    """Return a positive number with three digits, not rounded up.

    >>> _rounded_down(12.3999), _rounded_down(0.5)
    (12.3, 0.5)
    """
    unit = 10.0 ** (floor(log10(number)) - 2)
    return round(floor(number / unit + 1e-9) * unit, 12)


def _rounded_up(number: float) -> float:
    """Return a positive number with three digits, not rounded down.

    >>> _rounded_up(12.301), _rounded_up(1.0)
    (12.4, 1.0)
    """
    unit = 10.0 ** (floor(log10(number)) - 2)
    return round(ceil(number / unit - 1e-9) * unit, 12)


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
