"""The ℓ0 penalty: the number of non-zero weights."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

from torch import Tensor
from torch.nn.functional import hardshrink

from rvsm.penalties.base import Penalty, full_precision


@dataclass(frozen=True)
class L0(Penalty):
    """λ·#{i : u_i ≠ 0}, whose proximal operator is hard thresholding.

    Keeping a weight costs λ; dropping it costs w²/(2·step). A weight is therefore kept, unchanged, if |w| > √(2λ·step),
    which is the paper's threshold √(2λ/β). There is no shrinkage, so the remaining weights are not biased.

    >>> import torch
    >>> L0(lam=0.02).prox(torch.tensor([-0.3, 0.2, 0.1]), step=1.0)
    tensor([-0.3000,  0.0000,  0.0000])

    Reference: Dinh & Xin, Corollary 1.2.
    """

    def value(self, u: Tensor) -> Tensor:
        """Return λ times the number of non-zero entries."""
        return self.lam * u.count_nonzero().to(full_precision(u).dtype)

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Keep w where |w| > √(2λ·step)."""
        return hardshrink(full_precision(w), self.threshold(step)).to(w.dtype)

    def threshold(self, step: float) -> float:
        """Return √(2λ·step)."""
        return sqrt(2 * self.lam * step)

    def with_threshold(self, t: float, step: float) -> Self:
        """Set λ = t²/(2·step)."""
        return replace(self, lam=t * t / (2 * step))
