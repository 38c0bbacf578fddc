"""How far apart two means over seeds are, and whether the seeds can tell."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt

from rvsm.report.numbers import Mean

UNKNOWN_SPREAD = 3.2
"""Points of accuracy below which two single runs are not told apart.

Measured, in results/cpu.jsonl: two seeds of VGG-16 differ by 2.2 points without a method, by 0.8 with ℓ1. That is a
standard deviation of 1.2 for a single run and of 1.65 for a difference of two, which chance alone makes larger than 3.2
one time in twenty.
"""
CHANCE = f"{UNKNOWN_SPREAD:g} point{'s' * (UNKNOWN_SPREAD != 1)}"
"""The same in words, for notes and captions."""


@dataclass(frozen=True)
class Difference:
    """How far apart two means are, in points.

    >>> Difference.of(Mean(0.93, None, 1), Mean(0.928, None, 1))
    Difference(points=0.2, spread=None, resolution=3.2)
    >>> Difference.of(Mean(0.93, None, 1), Mean(0.928, None, 1)).told_apart
    False

    Attributes:
        points: the first mean minus the second.
        spread: the standard deviation of a difference of single runs; None if one of the means is a single run.
        resolution: how far apart the means must be to be told apart.

    """

    points: float
    spread: float | None
    resolution: float

    @classmethod
    def of(cls, one: Mean, other: Mean) -> "Difference":
        """Return the first minus the second."""
        points = round(100 * (one.mean - other.mean), 4)
        if one.std is None or other.std is None:
            return cls(points, None, UNKNOWN_SPREAD)
        spread = 100 * hypot(one.std, other.std)
        errors = [100 * std / sqrt(count) for std, count in ((one.std, one.count), (other.std, other.count))]
        if not spread:  # seeds that agree to the last image do not tell what another would do
            return cls(points, spread, UNKNOWN_SPREAD)
        return cls(points, spread, _student(_freedom(errors, (one.count, other.count))) * hypot(*errors))

    @property
    def told_apart(self) -> bool:
        """Whether it is more than chance may do: by Welch's t test at 5 %, or by `UNKNOWN_SPREAD` for single runs."""
        return self.points != 0 and abs(self.points) >= self.resolution

    def __str__(self) -> str:
        said = f"{self.points:+.2f} points".replace("-", "−")
        if self.spread is not None:
            said += f" (seeds spread by {self.spread:.2f}, told apart from {self.resolution:.2f} on)"
        if self.told_apart:
            return said
        return f"{said}, not told apart{' by one seed' if self.spread is None else ''}"


def _freedom(errors: Sequence[float], counts: Sequence[int]) -> float:
    """Return Welch's degrees of freedom, fewer than all seeds give where the spreads differ."""
    return hypot(*errors) ** 4 / sum(error**4 / (count - 1) for error, count in zip(errors, counts, strict=True))


def _student(freedom: float) -> float:
    """Return Student's t, two-sided, at 5 %."""
    from scipy.special import stdtrit  # takes a while, and is needed for several seeds only

    return float(stdtrit(freedom, 0.975))
