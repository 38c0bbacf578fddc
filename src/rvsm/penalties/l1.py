"""The ℓ1 penalty: the sum of magnitudes."""

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor
from torch.nn.functional import softshrink

from rvsm.penalties.base import Penalty, full_precision


@dataclass(frozen=True)
class L1(Penalty):
    """λ·Σ|u_i|, whose proximal operator is soft thresholding.

    Each weight moves towards zero by λ·step and stops there. The remaining weights are biased by this amount;
    ``finalize(output="masked")`` removes the bias.

    >>> import torch
    >>> L1(lam=0.2).prox(torch.tensor([-0.5, 0.2, 0.1]), step=1.0)
    tensor([-0.3000,  0.0000,  0.0000])

    Reference: Dinh & Xin, the operator S in Algorithm 1.
    """

    def value(self, u: Tensor) -> Tensor:
        """Return λ·Σ|u|."""
        return self.lam * full_precision(u).abs().sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Return sgn(w)·max(|w| − λ·step, 0)."""
        return softshrink(full_precision(w), self.threshold(step)).to(w.dtype)

    def threshold(self, step: float) -> float:
        """Return λ·step."""
        return self.lam * step

    def with_threshold(self, t: float, step: float) -> Self:
        """Set λ = t/step."""
        return replace(self, lam=t / step)
