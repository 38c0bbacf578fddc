"""Where a sum over the magnitudes of many layers, on many processes, reaches a goal: exact, and without a sort.

F(t) = Σ worth(min(unit · how many are ≤ t, cap)), summed over layers, never decreases, since the worth of each layer is
an increasing function. Sought is the smallest t at which F reaches a goal; for one layer and the goal k, t is its k-th
smallest magnitude.

1. A sample of each layer gives an estimate of F. The points where it reaches the goal ∓ three standard errors bound an
   interval that almost certainly contains t.
2. One pass over all magnitudes counts those below the interval and keeps those inside, about one per cent.
3. F is now known exactly in the interval, and t is found there. If the interval has missed t, which the counts show,
   another pass keeps all magnitudes on the side where t lies. The sample affects the time, never the result.

Steps 1 and 3 are the same search: non-negative floating-point numbers have the order of their bit patterns, read as
integers, and the range of these is divided again and again, by the value of F at a few points. The processes exchange
only these values, those of all layers in one message, whose size does not depend on the number of magnitudes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.splitting.magnitudes import Exchange, Floats, Measure, Population, Tally
from rvsm.timing import Curve

Keys = NDArray[np.int64]
Flags = NDArray[np.bool_]

_ERRORS = 3.0  # standard errors on each side of the goal: a second pass is needed in less than one of 300 cases
_NEIGHBOURS = 40  # so many floating-point numbers after the interval are also kept: see `Found.following`


@dataclass(frozen=True)
class Term:
    """The contribution of a layer to F: min(unit · how many are ≤ t, cap); with "cost", the sum of their costs.

    If it has a ``worth``, a function of that which increases, then this is its contribution.
    """

    of: Population
    unit: float = 1.0
    cap: float = inf
    measure: Measure = "number"
    worth: Curve | None = None

    @property
    def total(self) -> float:
        """What it is beyond the largest magnitude, if there were no cap."""
        if self.worth is not None:
            return self.worth.y[-1]
        return self.unit * (self.of.total if self.measure == "cost" else self.of.size)

    @property
    def spread(self) -> float:
        """The variance of its estimate, divided by q(1 − q) for the quantile q."""
        steepest = 1.0 if self.worth is None else self.worth.steepest
        return (steepest * self.unit * (self.of.cost if self.measure == "cost" else 1.0)) ** 2 * self.of.spread


@dataclass(frozen=True)
class Goal:
    """What F, the sum of some terms, has to reach."""

    terms: Sequence[Term]
    amount: float

    @property
    def error(self) -> float:
        """The standard error with which the samples estimate F, at the quantile that it has to reach."""
        total = sum(term.total for term in self.terms)
        q = min(max(self.amount / total, 0.0), 1.0) if total else 0.0
        # A few members decide about extreme quantiles, and their number is not normal: four more are assumed.
        return sqrt(sum(term.spread * (q * (1 - q) + 4 / max(term.of.drawn, 1)) for term in self.terms))

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(term.of.largest for term in self.terms)


@dataclass(frozen=True)
class Found:
    """What a layer has at the point where a goal is reached.

    Attributes:
        point: the smallest magnitude at which it is reached; the largest one if it never is.
        below: how many of the layer's magnitudes are smaller.
        upto: how many are at most as large.
        cost_below: what the smaller ones cost.
        cost_upto: what those cost that are at most as large.
        following: the layer's next larger magnitude; infinity if it is not close, at least not among the next 40
            floating-point numbers, so that rounding cannot move a threshold from the point to it.
        ties: how many are equal to the point on this process.

    """

    point: float
    below: int
    upto: int
    cost_below: float
    cost_upto: float
    following: float
    ties: int


def reach(goals: Sequence[Goal]) -> list[list[Found]]:
    """Return for each goal, and for each of its terms, what there is at the point where the goal is reached."""
    if not goals:
        return []
    search = _Search(goals)
    samples = [term.of.sample for term in search.terms]
    first, last = np.zeros_like(search.top), search.top
    if all(term.of.is_sampled_whole for term in search.terms):
        return search.describe(samples, search.narrow(samples, first, last))
    first, last = search.estimate(samples)
    tallies = search.collect(first, last)
    early, late = search.misses(tallies, first, last)
    if (early | late).any():
        beginning = np.where(late, last, np.where(early, 0, first))
        last, first = np.where(early, first, np.where(late, search.top, last)), beginning
        tallies = search.collect(first, last)
    return search.describe(tallies, search.narrow(tallies, first, last))


class _Search:
    """The search for the points at which some goals are reached, all in the same messages.

    Points are given as keys, the bit patterns of floating-point numbers.
    """

    def __init__(self, goals: Sequence[Goal], precision: type[np.floating[Any]] = np.float64) -> None:
        self.goals = goals
        self.precision = precision  # of messages
        self.terms = [term for goal in goals for term in goal.terms]
        sizes = [len(goal.terms) for goal in goals]
        self.goal_of = np.repeat(np.arange(len(goals)), sizes)
        self.starts = np.cumsum([0, *sizes[:-1]])
        self.amounts = np.array([[goal.amount] for goal in goals])
        self.units = np.array([[term.unit] for term in self.terms])
        self.caps = np.array([[term.cap] for term in self.terms])
        self.worths = [(i, term.worth) for i, term in enumerate(self.terms) if term.worth is not None]
        self.layers = [term.of.here for term in self.terms]
        self.exchange = Exchange(self.layers)
        self.dtype = np.result_type(*(layer.dtype for layer in self.layers))
        self.top = self.keys([goal.largest for goal in goals])

    def keys(self, points: Sequence[float]) -> Keys:
        return np.array(points, self.dtype).view(self._integer).astype(np.int64)

    def points(self, keys: Keys) -> Floats:
        return keys.astype(self._integer).view(self.dtype)

    @property
    def _integer(self) -> type[np.signedinteger[Any]]:
        return np.int64 if self.dtype == np.float64 else np.int32

    def estimate(self, samples: Sequence[Tally]) -> tuple[Keys, Keys]:
        """Return the interval in which each goal is almost certainly reached."""
        errors = [_ERRORS * goal.error for goal in self.goals]
        around = _Search(
            [replace(goal, amount=goal.amount - error) for goal, error in zip(self.goals, errors, strict=True)]
            + [replace(goal, amount=goal.amount + error) for goal, error in zip(self.goals, errors, strict=True)],
            np.float32,
        )
        first, last = np.split(around.narrow([*samples, *samples], np.zeros_like(around.top), around.top), 2)
        return first, last

    def collect(self, first: Keys, last: Keys) -> list[Tally]:
        """Return for each term the tally of the interval of its goal, and of a few numbers after it."""
        ends = np.stack([self.points(first), self.points(np.minimum(last + _NEIGHBOURS, self.top))], axis=1)
        uses: dict[int, list[int]] = {}
        for i, term in enumerate(self.terms):
            uses.setdefault(id(term.of), []).append(i)
        found: dict[int, Tally] = {}
        for terms in uses.values():  # each layer is read once
            tallies = self.layers[terms[0]].within(ends[self.goal_of[terms]])
            found.update(zip(terms, tallies, strict=True))
        return [found[i] for i in range(len(self.terms))]

    def misses(self, tallies: Sequence[Tally], first: Keys, last: Keys) -> tuple[Flags, Flags]:
        """Return which goals are reached before their interval begins, and which only after it has ended."""
        begin, end = self.points(first)[self.goal_of], self.points(last)[self.goal_of]
        rows = [
            [tally.below(a, term.measure), tally.upto(b, term.measure)]
            for term, tally, a, b in zip(self.terms, tallies, begin, end, strict=True)
        ]
        early, within = self._reached(np.array(rows)).T
        return early, ~within & (last < self.top)

    def narrow(self, tallies: Sequence[Tally], low: Keys, high: Keys) -> Keys:
        """Return the first key from ``low`` on at which each goal is reached; ``high`` if it is not before."""
        parts = parts_at_once(self.exchange.rows)
        steps, goals = np.arange(1, parts), np.arange(len(self.goals))
        while (low < high).any():
            length = (high - low)[:, None]
            keys = low[:, None] + length // parts * steps + length % parts * steps // parts  # all below high
            points = self.points(keys)
            rows = [
                tally.upto(points[i], term.measure)
                for i, term, tally in zip(self.goal_of, self.terms, tallies, strict=True)
            ]
            reached = self._reached(np.array(rows))
            count = (~reached).sum(axis=1)  # of points at which the goal is not reached yet
            low, high = (
                np.where(count > 0, keys[goals, count - 1] + 1, low),
                np.where(count < parts - 1, keys[goals, np.minimum(count, parts - 2)], high),
            )
        return low

    def describe(self, tallies: Sequence[Tally], keys: Keys) -> list[list[Found]]:
        """Return what each layer has at the point where the goal is reached."""
        points = self.points(keys)[self.goal_of]
        here = np.array([[tally.below(t), tally.upto(t)] for tally, t in zip(tallies, points, strict=True)])
        costs = [
            [tally.below(t, "cost"), tally.upto(t, "cost")] if "cost" in tally.sums else [0.0, 0.0]
            for tally, t in zip(tallies, points, strict=True)
        ]
        above = np.array([[-tally.above(t)] for tally, t in zip(tallies, points, strict=True)])
        sums, above = self.exchange.sums(np.concatenate([here, costs], axis=1)), self.exchange.maxima(above)
        found = []
        for i, (below, upto, *costs_there) in enumerate(sums):
            of = self.terms[i].of
            cost_below, cost_upto = (of.cost * below, of.cost * upto) if of.costs_are_equal else costs_there
            ties = int(here[i, 1] - here[i, 0])
            found.append(
                Found(
                    float(points[i]),
                    int(below),
                    int(upto),
                    float(cost_below),
                    float(cost_upto),
                    -float(above[i, 0]),
                    ties,
                )
            )
        return [found[i : i + len(goal.terms)] for i, goal in zip(self.starts, self.goals, strict=True)]

    def _reached(self, rows: Floats) -> Flags:
        """Return at which of its points each goal is reached, given what each term has there on this process."""
        summed = self.exchange.sums(rows.astype(self.precision))
        contributions = np.minimum(self.units * summed, self.caps)
        for i, worth in self.worths:
            contributions[i] = worth(contributions[i])
        reached: Flags = np.add.reduceat(contributions, self.starts, axis=0) >= self.amounts
        return reached


def parts_at_once(rows: int) -> int:
    """Return into how many parts a search divides its ranges at once: few messages, or small ones of many rows."""
    return 256 if rows <= 8 else 16 if rows <= 128 else 4 if rows <= 512 else 2
