"""The smoothly clipped absolute deviation penalty."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

import torch
from torch import Tensor

from rvsm.penalties.base import Penalty, full_precision, shrink


@dataclass(frozen=True)
class SCAD(Penalty):
    """λ|u| up to λ, then a parabola up to aλ, then the constant λ²(a+1)/2.

    The textbook proximal operator (soft thresholding, then a steeper line, then the identity) holds for step < a − 1.
    From there to a + 1, the objective is concave on the parabola, and soft thresholding jumps to the identity at
    λ(a+1+step)/2. From a + 1 on, soft thresholding is never optimal, and the operator is hard thresholding at
    λ√(step·(a+1)).

    >>> import torch
    >>> SCAD(lam=0.2, a=3.7).prox(torch.tensor([-0.9, 0.3, 0.1]), step=1.0)
    tensor([-0.9000,  0.1000,  0.0000])

    Reference: Fan & Li, "Variable selection via nonconcave penalized likelihood", 2001.

    Args:
        a: must be > 2; the penalty is constant from |u| = aλ on.

    """

    a: float = 3.7

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.a <= 2:
            raise ValueError(f"a must be > 2 for SCAD but is {self.a}; 3.7 is the usual choice")

    def value(self, u: Tensor) -> Tensor:
        """Return the sum of the three pieces."""
        lam, a = self.lam, self.a
        x = full_precision(u).abs()
        inner = x.clamp_max(lam)
        # The slope decreases linearly from λ to 0 between λ and aλ: integrate it from the end of the first piece.
        outer = (x.clamp_max(a * lam) - lam).clamp_min(0)
        return (lam * inner + lam * outer - outer * outer / (2 * (a - 1))).sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Return the global minimiser in each of the three regimes of the step."""
        lam, a = self.lam, self.a

        def survivors(x: Tensor) -> Tensor:
            soft = x - lam * step
            if step >= a + 1:
                return x
            if step >= a - 1:
                return torch.where(x > lam * (a + 1 + step) / 2, x, soft)
            line = ((a - 1) * x - step * a * lam) / (a - 1 - step)
            # The line meets its neighbours at λ(1+step) and aλ; taken like this, rounding cannot overshoot them.
            return soft.maximum(x.minimum(line))

        return shrink(w, self.threshold(step), survivors)

    def threshold(self, step: float) -> float:
        """Return λ·step, or λ√(step·(a+1)) in the regime of hard thresholding."""
        return self.lam * (step if step < self.a + 1 else sqrt(step * (self.a + 1)))

    def with_threshold(self, t: float, step: float) -> Self:
        """Set λ to t over the threshold at λ = 1."""
        return replace(self, lam=t / replace(self, lam=1.0).threshold(step))
