"""Means over seeds, their differences, and whether a difference is significant."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import hypot, inf, isfinite, nan, sqrt
from statistics import fmean, stdev
from typing import Any

NOTHING = "–"
"""Shown in place of an unknown number."""


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, with the sample standard deviation if there are at least two values.

    The standard deviation is NaN if a value is not finite. The mean of no values is NaN, and false as a boolean.

    >>> Mean.of([0.98, 0.96])
    Mean(mean=0.97, std=0.014142135623730963, count=2)
    >>> Mean.of([0.98, 0.96]).text(100, 2), Mean.of([None]).text()
    ('97.00 ± 1.41', '–')
    >>> bool(Mean.of([0.0])), bool(Mean.of([]))
    (True, False)
    """

    mean: float
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Mean":
        """Return the mean of the values that are not None."""
        there = [value for value in values if value is not None]
        if not there:
            return cls(nan, None, 0)
        std = None if len(there) < 2 else stdev(there) if all(map(isfinite, there)) else nan
        return cls(fmean(there), std, len(there))

    def __bool__(self) -> bool:
        return self.count > 0

    def text(self, factor: float = 1.0, digits: int = 2) -> str:
        """Return "mean ± std", multiplied by a factor, as a string."""
        if not self:
            return NOTHING
        spread = "" if self.std is None else f" ± {self.std * factor:,.{digits}f}"
        return f"{self.mean * factor:,.{digits}f}{spread}"

    @property
    def percent(self) -> str:
        """The fraction as a percentage."""
        return self.text(100, 2)

    @property
    def bare(self) -> "Mean":
        """The mean without its spread."""
        return replace(self, std=None)

    def as_json(self) -> dict[str, Any] | None:
        """Return the fields as plain values; null if the mean is not known."""
        return asdict(self) if self else None


@dataclass(frozen=True)
class Difference:
    """The difference of two means, in points.

    >>> Difference.of(Mean(0.93, None, 1), Mean(0.928, None, 1))
    Difference(points=0.2, spread=None, resolution=inf)
    >>> Difference.of(Mean(0.93, None, 1), Mean(0.90, None, 1), unknown=2.5).told_apart
    True
    """

    points: float  # the first mean minus the second
    spread: float | None  # the standard deviation of a difference of single runs; None with a single run
    resolution: float  # the smallest significant difference; infinite if the seeds do not determine it

    @classmethod
    def of(cls, one: Mean, other: Mean, *, unknown: float | None = None) -> "Difference":
        """Return the first minus the second.

        The effect of chance is estimated from the seeds: with Welch's t test at 5 % if both means have several seeds,
        and with Student's t test, using the spread of the other mean, if one of them is a single run. In the latter
        case, and if all seeds agree, a resolution that is known from other runs can be given as ``unknown``.
        """
        points = round(100 * (one.mean - other.mean), 4)
        spreads = [(100 * m.std, m.count) for m in (one, other) if m.std is not None]
        spread = hypot(*(std for std, _ in spreads)) if len(spreads) == 2 else None
        if not any(std for std, _ in spreads) or (spread is None and unknown is not None):
            return cls(points, spread, inf if unknown is None else unknown)  # equal seeds say nothing about others
        if spread is None:
            ((std, count),) = spreads
            return cls(points, None, _student(count - 1) * std * sqrt(1 / one.count + 1 / other.count))
        errors = [std / sqrt(count) for std, count in spreads]
        # Welch's degrees of freedom, which are fewer if the spreads differ
        parts = [error**4 / (count - 1) for error, (_, count) in zip(errors, spreads, strict=True)]
        return cls(points, spread, _student(hypot(*errors) ** 4 / sum(parts)) * hypot(*errors))

    @property
    def told_apart(self) -> bool:
        """Whether the difference is larger than chance can explain."""
        return self.points != 0 and abs(self.points) >= self.resolution

    def __str__(self) -> str:
        said = f"{self.points:+.2f} points".replace("-", "−")
        if self.spread is not None:
            said += f" (seeds spread by {self.spread:.2f}, told apart from {self.resolution:.2f} on)"
        if self.told_apart:
            return said
        return f"{said}, not told apart{' by one seed' if self.spread is None else ''}"


def _student(freedom: float) -> float:
    """Return the two-sided quantile of Student's t at 5 %."""
    from scipy.special import stdtrit  # slow to import, and only needed for several seeds

    return float(stdtrit(freedom, 0.975))
