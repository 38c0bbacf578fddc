"""Choose which groups of weights to remove, so that a target is met to within one group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from torch import Tensor

from rvsm.splitting.magnitudes import Exchange, Magnitudes, Population, survey
from rvsm.splitting.quantiles import Found, Goal, Term, reach
from rvsm.splitting.ranks import ALONE, Ranks
from rvsm.timing import Curve


@dataclass(frozen=True)
class Candidates:
    """The groups of one layer that can be removed, the smallest first.

    Attributes:
        population: their magnitudes, and what each counts towards the target, in weights or multiplications.
        limit: how many can be removed at most, so that the layer stays alive.
        most: what so many of the smallest cost.
        worth: how much removed cost counts towards the target, as an increasing function of it; None if that is the
            cost itself.

    """

    population: Population
    limit: int
    most: float
    worth: Curve | None = None

    def value(self, cost: float) -> float:
        """Return what a removed cost counts towards the target."""
        return cost if self.worth is None else float(self.worth(cost))

    def cost_for(self, value: float) -> float:
        """Return the cost to remove for something that counts towards the target."""
        return value if self.worth is None else float(self.worth.inverse(value))


def candidates(
    layers: Sequence[Population], kept: Sequence[int], worths: Sequence[Curve | None] | None = None
) -> list[Candidates]:
    """Return the groups of each layer that can be removed if it keeps at least so many, with their worths."""
    limits = [groups.size - least for groups, least in zip(layers, kept, strict=True)]
    worths = [None] * len(layers) if worths is None else worths
    return [Candidates(*each) for each in zip(layers, limits, costs_of(layers, limits), worths, strict=True)]


def costs_of(layers: Sequence[Population], counts: Sequence[int]) -> list[float]:
    """Return what the ``count`` smallest groups of each layer cost; among ties, the first ones."""
    costs = [groups.cost * count for groups, count in zip(layers, counts, strict=True)]
    unequal = [i for i, groups in enumerate(layers) if not groups.costs_are_equal and counts[i] > 0]
    for i, found in zip(unequal, _nth(layers, {i: counts[i] for i in unequal}), strict=True):
        costs[i] = found.cost_below + _cost_of_ties(layers[i], found, counts[i] - found.below)
    return costs


def counts_for(layers: Sequence[Population], costs: Sequence[float]) -> list[int]:
    """Return the number of smallest groups of each layer whose cost is closest to a given one."""
    counts = [min(max(round(cost / of.cost), 0), of.size) for of, cost in zip(layers, costs, strict=True)]
    unequal = [i for i, groups in enumerate(layers) if not groups.costs_are_equal]
    goals = [Goal([Term(layers[i], measure="cost")], costs[i]) for i in unequal]
    for i, [found] in zip(unequal, reach(goals), strict=True):
        counts[i] = found.below + _ties_for(layers[i], found, costs[i] - found.cost_below)
    return counts


def together(layers: Sequence[Candidates], target: float) -> tuple[list[int], list[Found]]:
    """Return how many groups of each layer a common threshold removes for a ``target``, and what is there.

    Groups that tie at the threshold are removed in the order of the layers until the target is met, and within a layer
    in the order of the processes.
    """
    terms = [
        Term(each.population, unit=each.population.cost, cap=each.most, worth=each.worth)
        if each.population.costs_are_equal
        else Term(each.population, cap=each.most, measure="cost", worth=each.worth)
        for each in layers
    ]
    [found] = reach([Goal(terms, target)])
    counts = [min(at.below, each.limit) for at, each in zip(found, layers, strict=True)]
    costs = [
        each.most if count == each.limit else at.cost_below
        for each, count, at in zip(layers, counts, found, strict=True)
    ]
    missing = target - sum(each.value(cost) for each, cost in zip(layers, costs, strict=True))
    for i, (each, at) in enumerate(zip(layers, found, strict=True)):
        most = min(at.upto, each.limit)
        if counts[i] == most:
            continue
        before = each.value(costs[i])
        wanted = each.cost_for(before + missing)
        if each.population.costs_are_equal:
            counts[i] = min(max(round(wanted / each.population.cost), counts[i]), most)
            missing -= each.value(counts[i] * each.population.cost) - before
        else:
            ties = min(_ties_for(each.population, at, wanted - costs[i]), most - counts[i])
            counts[i] += ties
            missing -= each.value(costs[i] + _cost_of_ties(each.population, at, ties)) - before
    return counts, found


def cutoffs(layers: Sequence[Candidates], counts: Sequence[int], common: Sequence[Found | None]) -> list[float]:
    """Return for each layer a threshold that removes its ``count`` smallest groups and, despite rounding, no other.

    It is the common threshold, for layers that have one, if that removes exactly these groups; otherwise the closest
    threshold that does. Other layers have a threshold halfway between the last removed group and the next one.
    """
    groups = [each.population for each in layers]
    between = [i for i, each in enumerate(groups) if 0 < counts[i] < each.size]
    own = [i for i in between if common[i] is None]
    at = {i: found for i in between if (found := common[i]) is not None}
    at.update(zip(own, _nth(groups, {i: counts[i] for i in own}), strict=True))
    following = {i: at[i].point if counts[i] < at[i].upto else at[i].following for i in between}
    unknown = [i for i in between if counts[i] < at[i].below or (common[i] is None and following[i] == inf)]
    following.update(zip(unknown, (f.point for f in _nth(groups, {i: counts[i] + 1 for i in unknown})), strict=True))
    thresholds = [each.largest if count else 0.0 for each, count in zip(groups, counts, strict=True)]
    for i in between:
        wanted = at[i].point if common[i] is not None else (at[i].point + following[i]) / 2
        guard = 16 * float(np.finfo(groups[i].here.dtype).eps)
        thresholds[i] = min(wanted, following[i] * (1 - guard))
    return thresholds


def smallest(magnitudes: Tensor, count: int, ranks: Ranks = ALONE) -> Tensor:
    """Return a mask of exactly the ``count`` smallest entries on all processes; among ties, the first ones.

    >>> import torch
    >>> smallest(torch.tensor([3.0, 1.0, 1.0, 2.0]), 1)
    tensor([False,  True, False, False])
    """
    [removal] = removals(survey([Magnitudes([magnitudes], ranks=ranks)]), [count])
    return removal.mask(magnitudes)


@dataclass(frozen=True)
class Removal:
    """The groups of a layer on this process that go: those smaller than a point, and the first few equal to it.

    Attributes:
        point: the largest magnitude of a group that goes.
        ties: how many groups are equal to it.
        taken: how many of these go.

    """

    point: float = -1.0
    ties: int = 0
    taken: int = 0

    def mask(self, magnitudes: Tensor) -> Tensor:
        """Return which groups go."""
        if self.taken in (0, self.ties):
            return magnitudes <= self.point if self.taken else magnitudes < self.point
        values = magnitudes.flatten()
        mask = values < self.point
        mask[(values == self.point).nonzero().flatten()[: self.taken]] = True
        return mask.view(magnitudes.shape)


def removals(layers: Sequence[Population], counts: Sequence[int]) -> list[Removal]:
    """Return which are the ``count`` smallest groups of each layer; among ties, the first ones."""
    some = [i for i, count in enumerate(counts) if count > 0]
    found = _nth(layers, {i: counts[i] for i in some})
    exchange = Exchange([layers[i].here for i in some])
    earlier = exchange.before(np.array([[at.ties] for at in found], np.float64))
    result = [Removal()] * len(layers)
    for i, at, [before] in zip(some, found, earlier, strict=True):
        result[i] = Removal(at.point, at.ties, min(max(counts[i] - at.below - int(before), 0), at.ties))
    return result


def _cost_of_ties(groups: Population, found: Found, number: int) -> float:
    """Return what the first groups cost of those whose magnitude is the point found."""
    if number in (0, found.upto - found.below):
        return found.cost_upto - found.cost_below if number else 0.0
    costs, exchange = groups.here.costs_at(found.point), Exchange([groups.here])
    [[earlier]] = exchange.before(np.array([[float(len(costs))]]))
    [[total]] = exchange.sums(np.array([[costs[: max(number - int(earlier), 0)].sum()]]))
    return float(total)


def _ties_for(groups: Population, found: Found, cost: float) -> int:
    """Return how many groups, of those whose magnitude is the point found, come closest to a cost."""
    if found.below == found.upto:
        return 0
    costs, exchange = groups.here.costs_at(found.point), Exchange([groups.here])
    [[earlier]] = exchange.before(np.array([[costs.sum()]]))
    reached = earlier + np.cumsum(costs)
    around = [[reached[reached <= cost].max(initial=0.0), -reached[reached > cost].min(initial=np.inf)]]
    [[less, more]] = exchange.maxima(np.array(around))
    best = less if cost - less <= -more - cost else -more
    [[number]] = exchange.sums(np.array([[float(np.count_nonzero(reached < best))]]))
    return int(number) + 1 if best > 0 else 0


def _nth(layers: Sequence[Population], numbers: Mapping[int, int]) -> list[Found]:
    """Return what is at the n-th smallest group of some layers, given the n of each."""
    found = reach([Goal([Term(layers[i])], number) for i, number in numbers.items()])
    return [one for [one] in found]
