"""The Pareto front of several goals, and its knee."""

from collections.abc import Sequence
from math import fsum

Values = Sequence[float]
"""A point: its value for each goal."""


def front(points: Sequence[Values]) -> list[int]:
    """Return the indices of the points that no other point dominates, best first by the first goal; more is better.

    A point dominates another if it is nowhere worse and somewhere better. Of equal points, all are kept.

    >>> front([(0.9, 0.5), (0.8, 0.9), (0.8, 0.4), (0.7, 0.9)])
    [0, 1]
    """
    kept = [i for i, p in enumerate(points) if not any(_dominates(q, p) for q in points)]
    return sorted(kept, key=lambda i: tuple(-v for v in points[i]))


def knee(points: Sequence[Values]) -> int:
    """Return the index of the point of a front where giving up one goal begins to cost the others much.

    Each goal is scaled to [0, 1] over the front; the knee has the largest sum. With two goals, this is the point
    farthest above the line that joins the ends of the front.

    >>> knee([(0.99, 0.80), (0.98, 0.95), (0.90, 0.99)])
    1
    """
    if not points:
        raise ValueError("a front without points has no knee")
    by_goal = list(zip(*points, strict=True))
    lows, highs = [min(values) for values in by_goal], [max(values) for values in by_goal]

    def total(point: Values) -> float:
        shares = [(v - a) / (b - a) for v, a, b in zip(point, lows, highs, strict=True) if b > a]
        return fsum(shares)

    return max(range(len(points)), key=lambda i: total(points[i]))


def _dominates(one: Values, other: Values) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True)) and any(a > b for a, b in zip(one, other, strict=True))
