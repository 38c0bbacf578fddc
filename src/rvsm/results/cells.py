"""Numbers of experiments as cells of a table."""

from rvsm.report.difference import Difference
from rvsm.report.numbers import NOTHING, Mean


def points(points: float) -> str:
    """Return points with their sign."""
    return f"{points:+.2f}".replace("-", "−")


def difference(difference: Difference) -> str:
    """Return a difference with its spread."""
    spread = "" if difference.spread is None else f" ± {difference.spread:.2f}"
    return f"{points(difference.points)}{spread}"


def kilobytes(mean: Mean | None) -> str:
    """Return bytes in thousands."""
    return NOTHING if mean is None else mean.text(1e-3, 0)


def times(mean: Mean | None) -> str:
    """Return a factor."""
    return NOTHING if mean is None else mean.text(digits=1)


def minutes(mean: Mean | None) -> str:
    """Return minutes, with a digit more where they are few."""
    return NOTHING if mean is None else mean.text(digits=0 if mean.mean >= 10 else 1)


def whole(mean: Mean | None) -> str:
    """Return a number without digits after the point."""
    return NOTHING if mean is None else mean.text(digits=0)
