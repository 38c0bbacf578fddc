"""Softmax: scores as probabilities, over the channels of each position."""

from collections.abc import Sequence
from dataclasses import dataclass

from rvsm.runtime.plan.operation import Operation, Shape


@dataclass(frozen=True, kw_only=True)
class Softmax(Operation):
    """exp(x) / Σ exp(x), summed over the channels of a position; with ``log``, its logarithm."""

    kind = "softmax"
    since = 3
    source: int
    log: bool = False

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the shape of the source."""
        return sources[0]

    @property
    def label(self) -> str:
        """The usual name."""
        return "log softmax" if self.log else self.kind
