"""The minimax concave penalty."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

from torch import Tensor

from rvsm.penalties.base import Penalty, full_precision, shrink


@dataclass(frozen=True)
class MCP(Penalty):
    """λ|u| − u²/(2γ) up to |u| = γλ, and the constant γλ²/2 beyond: large weights are not shrunk.

    For step < γ the proximal operator is firm thresholding. For step ≥ γ, the usual case in RVSM, the objective is
    concave up to γλ, and the operator is hard thresholding at λ√(γ·step).

    >>> import torch
    >>> MCP(lam=0.2, gamma=2.0).prox(torch.tensor([-0.5, 0.3, 0.1]), step=1.0)
    tensor([-0.5000,  0.2000,  0.0000])

    Reference: Zhang, "Nearly unbiased variable selection under minimax concave penalty", 2010.

    Args:
        gamma: γ; the penalty is constant from |u| = γλ on.

    """

    gamma: float = 3.0

    def value(self, u: Tensor) -> Tensor:
        """Return the sum of the two pieces."""
        x = full_precision(u).abs().clamp_max(self.gamma * self.lam)
        return (self.lam * x - x * x / (2 * self.gamma)).sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Return firm (step < γ) or hard (step ≥ γ) thresholding."""
        lam, gamma = self.lam, self.gamma
        if step >= gamma:
            return shrink(w, self.threshold(step), lambda x: x)
        # The line meets the identity at γλ; with the minimum, rounding cannot overshoot it where the line is steep.
        return shrink(w, self.threshold(step), lambda x: x.minimum((x - lam * step) / (1 - step / gamma)))

    def threshold(self, step: float) -> float:
        """Return λ·step, or λ√(γ·step) in the regime of hard thresholding."""
        return self.lam * (step if step < self.gamma else sqrt(self.gamma * step))

    def with_threshold(self, t: float, step: float) -> Self:
        """Set λ to t over the threshold at λ = 1."""
        return replace(self, lam=t / replace(self, lam=1.0).threshold(step))
