"""How a budget divides its target among layers: which groups of each are removed, and at which thresholds."""

from collections.abc import Callable, Sequence
from math import ceil, isfinite, sqrt
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from rvsm.splitting.costs import Costs
from rvsm.splitting.layers import Layer, require_finite
from rvsm.splitting.magnitudes import Magnitudes, Population, survey
from rvsm.splitting.quantiles import Found
from rvsm.splitting.selection import Candidates, candidates, costs_of, counts_for, cutoffs, removals, together
from rvsm.splitting.units import Unit, units
from rvsm.timing import Curve

if TYPE_CHECKING:
    from rvsm.splitting.budget import Budget


class Allocation:
    """The groups of some layers, as a budget ranks and counts them.

    Attributes:
        budget: the target.
        units: the layers; those whose groups are zero together are one unit.
        costs: what is counted.

    """

    def __init__(self, budget: "Budget", layers: Sequence[Layer]) -> None:
        self.budget = budget
        self.layers = layers
        self.units = units(layers)
        self.costs = Costs(budget.by, budget.times)

    @torch.no_grad()
    def cutoffs(self, target: float) -> list[float]:
        """Return the threshold of each layer for which the fraction ``target`` of what is counted is saved."""
        found = self.candidates(target)
        counts, common = self._counts(found, target)
        thresholds = {
            layer.name: threshold * each.population.here.scale
            for unit, each, threshold in zip(self.units, found, cutoffs(found, counts, common), strict=True)
            for layer in unit.layers
        }
        return [thresholds[layer.name] for layer in self.layers]

    @torch.no_grad()
    def zeros(self, target: float) -> dict[str, Tensor]:
        """Return a mask of the weights to be zeroed in each layer; their number is exact."""
        counts, _ = self._counts(self.candidates(target), target)
        # Once more without the scales: two magnitudes that differ may be equal after a division.
        chosen = removals(survey([_magnitudes(unit) for unit in self.units]), counts)
        masks: dict[str, Tensor] = {}
        for unit, removal in zip(self.units, chosen, strict=True):
            masks.update(unit.spread(removal.mask(unit.magnitudes())))
        return masks

    @torch.no_grad()
    def candidates(self, target: float) -> list[Candidates]:
        """Return the groups of each unit by magnitude, with their cost and how many can be removed.

        Along the ramp, the worth of zeros goes from a straight line to what was measured. A layer with a few zeros is
        no faster, so a target that is a little time would otherwise need very many zeros at once.
        """
        populations = survey([_magnitudes(unit, self._scale(unit), self.costs.counted) for unit in self.units])
        for unit, groups in zip(self.units, populations, strict=True):
            if not isfinite(groups.largest):
                for layer in unit.layers:
                    require_finite(layer)
        worths = [self.costs.worth(unit) for unit in self.units]
        kept = self._floors(populations, worths)
        ahead = 1 - self._progress(target)
        return candidates(populations, kept, [None if each is None else each.straightened(ahead) for each in worths])

    def whole(self, found: Sequence[Candidates]) -> float:
        """Return what the dense network costs."""
        return self.costs.whole([c.population.total for c in found])

    def _counts(self, found: Sequence[Candidates], target: float) -> tuple[list[int], list[Found | None]]:
        """Return how many groups of each unit to remove for the fraction ``target``.

        Layers with their own sparsity follow the same ramp to it; the other layers make up the rest. For these, also
        return what is at their common threshold.
        """
        progress = self._progress(target)
        counts, common = [0] * len(found), cast("list[Found | None]", [None] * len(found))
        free = [i for i, unit in enumerate(self.units) if unit.first.sparsity is None and self.budget.scope == "global"]
        alone = [i for i in range(len(found)) if i not in free]
        groups = [found[i].population for i in alone]
        own = [self.units[i].first.sparsity for i in alone]
        whole = target * self.whole(found)
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
        if self.budget.by != "time":
            return target
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            shares = [middle if share is None else progress * share for share in own]
            saved = sum(c.value(min(s * c.population.total, c.most)) for c, s in zip(layers, shares, strict=True))
            low, high = (low, middle) if saved >= whole else (middle, high)
        return high

    def _progress(self, target: float) -> float:
        return target / self.budget.goal if self.budget.goal else 1.0  # a target of zero has no ramp

    def _floors(self, populations: Sequence[Population], worths: Sequence[Curve | None]) -> list[int]:
        """Return the minimum number of groups that each unit keeps."""
        counts = [groups.size for groups in populations]
        if self.budget.floor is not None:
            return [max(1, ceil(self.budget.floor * n - 1e-9)) for n in counts]  # 0.07 × 100 is a little more than 7
        # In a very sparse network, layers compete for few places: a layer whose weights have shrunk a little loses more
        # of them, shrinks further, and would die. Layers with their own sparsity do not compete.
        alone = [self.budget.scope == "layer" or unit.first.sparsity is not None for unit in self.units]
        costs = [
            unit.weights * unit.cost(self.costs.counted) if worth is None else worth.y[-1]
            for unit, worth in zip(self.units, worths, strict=True)
        ]
        density = max(1 - self.budget.goal * (self.costs.whole(costs) / sum(costs)), 0.0)
        wanted = [
            0.0 if own else max(min(0.005, density / 2) * n, unit.first.outputs if unit.first.elementwise else 1)
            for unit, n, own in zip(self.units, counts, alone, strict=True)
        ]
        taken = sum(cost * w / n for cost, w, n in zip(costs, wanted, counts, strict=True))
        left = density * sum(cost for cost, own in zip(costs, alone, strict=True) if not own)
        fits = min(1.0, left / 2 / taken) if taken else 1.0
        return [max(1, int(fits * w)) for w in wanted]

    def _scale(self, unit: Unit) -> float:
        """Return the divisor of a unit's magnitudes when they are compared with those of other units."""
        return (unit.deviation() if self.budget.normalize else 1.0) * sqrt(unit.cost(self.costs.price))


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
