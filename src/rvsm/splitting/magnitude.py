"""Gradual magnitude pruning."""

from torch import Tensor

from rvsm.splitting.layers import Layer
from rvsm.splitting.targeted import Targeted


class Magnitude(Targeted):
    """Every few steps the smallest weights are set to zero and stay zero, along the cubic ramp of the budget.

    No penalty and no pull: the baseline that any method at one training's cost has to beat.

    Reference: Zhu & Gupta, "To prune, or not to prune", 2017.

    """

    name = "magnitude"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.target  # raises if there is none

    def sparse(self, layer: Layer) -> Tensor:
        """Return w, which is sparse already."""
        return layer.w.detach().clone()

    def fixed_sparsity(self, step: int) -> float:
        """Return the sparsity that the ramp has reached."""
        return self.target.target(step)
