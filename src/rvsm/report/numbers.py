"""Numbers from files that a person may have edited, and their mean and spread."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, nan
from statistics import fmean, stdev
from typing import Any

LARGE = 1e30
"""Beyond this a number is the trace of a divergence, and would spoil an axis."""


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, with the sample standard deviation if there are at least two, NaN if one is not finite.

    >>> Mean.of([0.98, 0.96])
    Mean(mean=0.97, std=0.014142135623730963, count=2)
    >>> Mean.of([0.98]).std is None, Mean.of([]) is None
    (True, True)
    >>> Mean.of([0.98, 0.96]).text(100, 2)
    '97.00 ± 1.41'
    """

    mean: float
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Mean | None":
        """Return the mean of the values that are there, if there are any."""
        there = [value for value in values if value is not None]
        if not there:
            return None
        std = None if len(there) < 2 else stdev(there) if all(map(isfinite, there)) else nan
        return cls(fmean(there), std, len(there))

    def text(self, factor: float = 1.0, digits: int = 2) -> str:
        """Return it as "mean ± std", multiplied by a factor."""
        spread = "" if self.std is None else f" ± {self.std * factor:,.{digits}f}"
        return f"{self.mean * factor:,.{digits}f}{spread}"


NOTHING = "–"
"""What stands for a number that is not known."""


def percent(mean: Mean | None) -> str:
    """Return a share in percent.

    >>> percent(Mean(0.9, None, 1)), percent(None)
    ('90.00', '–')
    """
    return NOTHING if mean is None else mean.text(100, 2)


def inside(tree: Any, *path: str) -> Any:
    """Return what is at a path of nested tables, or None.

    >>> inside({"test": {"u": 1}}, "test", "u"), inside({"test": 3}, "test", "u")
    (1, None)
    """
    for key in path:
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(key)
    return tree


def number(tree: Any, *path: str, low: float = -LARGE, high: float = LARGE) -> float | None:
    """Return the number at a path; None if there is none, or it is not finite or out of bounds.

    >>> number({"gap": 2}, "gap"), number({"gap": "wide"}, "gap"), number({"gap": float("nan")}, "gap")
    (2.0, None, None)
    """
    found = inside(tree, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        value = float(found)
    except OverflowError:
        return None
    return value if isfinite(value) and low <= value <= high else None


def share(tree: Any, *path: str) -> float | None:
    """Return the number at a path if it is in [0, 1]."""
    return number(tree, *path, low=0.0, high=1.0)


def count(tree: Any, *path: str) -> int | None:
    """Return the number at a path if it is a whole number ≥ 0."""
    found = number(tree, *path, low=0.0, high=inf)
    return int(found) if found is not None and found == int(found) else None


def listed(found: Any, *, low: float = -LARGE) -> tuple[float, ...] | None:
    """Return a list of numbers; None if it is not a list or something else is in it."""
    if not isinstance(found, list):
        return None
    values = [number({"": value}, "", low=low) for value in found]
    kept = tuple(value for value in values if value is not None)
    return kept if len(kept) == len(values) else None
