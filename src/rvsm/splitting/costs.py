"""What a target counts: weights, multiplications, or the time of a call in the runtime."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rvsm.splitting.layers import Layer
from rvsm.splitting.units import Unit
from rvsm.timing import Curve, LayerTimes, Profile


@dataclass(frozen=True)
class Costs:
    """The costs of layers.

    Weights and multiplications add up: a removed group is worth what its weights cost. Time does not. The curve of a
    layer says how much all of its removed weights are worth together.
    """

    by: str
    profile: Profile | None = None

    def counted(self, layer: Layer) -> float:
        """Return how much one weight of a layer counts; for time, weights are counted and then have a worth."""
        return layer.multiplications if self.by == "flops" else 1.0

    def price(self, layer: Layer) -> float:
        """Return what one non-zero weight of a layer costs, to rank weights of different layers."""
        if self.by != "time":
            return self.counted(layer)
        assert self.profile is not None
        return self.profile.costs.get(layer.name, 0.0)  # biases and norms follow their channel

    def worth(self, unit: Unit) -> Curve | None:
        """Return the seconds that are saved if so many weights of a unit are zero; None if the target is not a time."""
        if self.by != "time":
            return None
        assert self.profile is not None
        known = [times for layer in unit.layers if (times := self.profile.layers.get(layer.name)) is not None]
        zeros = np.unique(np.concatenate([1 - np.asarray(times.seconds.x) for times in known]))
        saved = sum(map(partial(_saved, zeros=zeros), known))
        return Curve(tuple((zeros * unit.weights).tolist()), tuple(np.asarray(saved).tolist()))

    def whole(self, totals: Sequence[float]) -> float:
        """Return what the dense network costs, given what the layers of the target cost."""
        return sum(totals) if self.profile is None or self.by != "time" else self.profile.dense_parts

    def left(self, parts: float) -> float:
        """Return the fraction of the dense network's cost that is left if this fraction of what adds up is left."""
        if self.profile is None or self.by != "time":
            return parts
        return self.profile.call(parts * self.profile.dense_parts) / self.profile.dense


def _saved(times: LayerTimes, zeros: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
    """Return the seconds saved by fractions of zeros."""
    return np.asarray(times.seconds(1.0) - times.seconds(1 - zeros))
