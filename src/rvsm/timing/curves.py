"""Curves: non-decreasing and piecewise linear."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RISE = 1e-6  # the least rise of a curve from point to point, as a fraction of its end, so that it has an inverse


@dataclass(frozen=True)
class Curve:
    """A curve through points whose x and y both increase strictly; it is constant outside of them.

    >>> curve = Curve((0.0, 2.0, 4.0), (1.0, 2.0, 6.0))
    >>> float(curve(3.0)), float(curve.inverse(4.0)), float(curve(9.0))
    (4.0, 3.0, 6.0)
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, x: Any) -> Any:
        """Return the curve at one or more points."""
        return np.interp(x, self.x, self.y)

    def inverse(self, y: Any) -> Any:
        """Return where the curve has one or more values."""
        return np.interp(y, self.y, self.x)

    @property
    def steepest(self) -> float:
        """The largest slope."""
        return float(np.max(np.diff(self.y) / np.diff(self.x)))

    def straightened(self, share: float) -> "Curve":
        """Return a mixture with the straight line between its ends, which has this share.

        >>> Curve((0.0, 1.0, 2.0), (0.0, 0.0, 2.0)).straightened(0.5)
        Curve(x=(0.0, 1.0, 2.0), y=(0.0, 0.5, 2.0))
        """
        x, y = np.asarray(self.x), np.asarray(self.y)
        line = y[0] + (y[-1] - y[0]) * (x - x[0]) / (x[-1] - x[0])
        return Curve(self.x, tuple(((1 - share) * y + share * line).tolist()))

    @classmethod
    def through(cls, x: Sequence[float], y: Sequence[float]) -> "Curve":
        """Return the closest curve to measured points, given in the order of x, which may repeat; y is never negative.

        >>> Curve.through([0.0, 1.0, 1.0, 2.0], [1.0, 4.0, 2.0, 5.0])
        Curve(x=(0.0, 1.0, 2.0), y=(1.0, 3.0, 5.0))
        """
        places, which = np.unique(np.asarray(x, np.float64), return_inverse=True)
        counts = np.bincount(which)
        values = nondecreasing(np.bincount(which, weights=np.maximum(y, 0.0)) / counts, counts)
        least = RISE * max(float(values[-1]), 1e-12)
        for i in range(1, len(values)):
            values[i] = max(values[i], values[i - 1] + least)
        return cls(tuple(places.tolist()), tuple(values.tolist()))


def nondecreasing(values: Sequence[float] | Floats, weights: Sequence[float] | NDArray[np.int64]) -> Floats:
    """Return the closest non-decreasing sequence, in the sense of weighted least squares: neighbours are pooled.

    >>> nondecreasing([1.0, 3.0, 2.0, 4.0], [1, 1, 1, 1]).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[list[float]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        pools.append([float(value), float(weight), 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m, k), (b, n, j) = pools[-2:]
            pools[-2:] = [[(m * a + n * b) / (m + n), m + n, k + j]]
    return np.repeat([mean for mean, _, _ in pools], [int(length) for _, _, length in pools])
