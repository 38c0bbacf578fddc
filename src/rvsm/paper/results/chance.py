"""Which differences may be chance if a row of the paper's tables was run with one seed."""

from rvsm.report.statistics import Difference, Mean

UNKNOWN_SPREAD = 3.2
"""Points of accuracy below which two single runs of these experiments are not told apart.

Measured, in results/cpu.jsonl: two seeds of VGG-16 differ by 2.2 points without a method, by 0.8 with ℓ1. That is a
standard deviation of 1.2 for a single run and of 1.65 for a difference of two. Such a difference exceeds 3.2 by chance
alone one time in twenty.
"""
CHANCE = f"{UNKNOWN_SPREAD:g} points"
"""The same as a string, for notes and captions."""


def difference(one: Mean, other: Mean) -> Difference:
    """Return the first minus the second; `UNKNOWN_SPREAD` is the resolution if there are too few seeds."""
    return Difference.of(one, other, unknown=UNKNOWN_SPREAD)
