"""Gradual magnitude pruning."""

from torch import Tensor

from rvsm.splitting.layers import Layer
from rvsm.splitting.targeted import Targeted


class Magnitude(Targeted):
    """Every few steps, set the smallest weights to zero and keep them there, along the cubic ramp of the budget.

    There is no penalty and no pull. This is the baseline that any method at the cost of one training has to beat.

    Reference: Zhu & Gupta, "To prune, or not to prune", 2017.

    """

    name = "magnitude"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.target  # raises if there is none

    def sparse(self, layer: Layer) -> Tensor:
        """Return w, which is already sparse."""
        return layer.w.detach().clone()

    def fixed_sparsity(self, step: int) -> float:
        """Return the sparsity that the ramp has reached."""
        return self.target.target(step)
