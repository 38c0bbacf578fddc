"""The log-sum penalty."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log1p, sqrt
from typing import Self

import torch
from torch import Tensor

from rvsm.penalties.base import Penalty, full_precision, shrink


@dataclass(frozen=True)
class LogSum(Penalty):
    """λ·Σlog(1 + |u_i|/ε).

    With μ = λ·step, a non-zero result is the larger root of (u − |w|)(u + ε) + μ = 0. If μ ≤ ε², it leaves zero
    continuously at t = μ/ε. Otherwise it jumps from 0 to εU at the point where both have the same objective. In units
    of ε, μ = M(U) and t = T(U) as given below, and the threshold and its inverse are found by bisection in U.

    >>> import torch
    >>> LogSum(lam=0.1, eps=1.0).prox(torch.tensor([-1.0, 0.1, 0.05]), step=1.0)
    tensor([-0.9487,  0.0000,  0.0000])

    Reference: Prater-Bennette, Shen & Tripp, "The proximity operator of the log-sum penalty", 2022.

    Args:
        eps: ε, the shape of the penalty: close to ℓ0 if small, close to ℓ1 if large.

    """

    eps: float = 0.1

    def value(self, u: Tensor) -> Tensor:
        """Return λ·Σlog(1 + |u|/ε)."""
        return self.lam * (full_precision(u).abs() / self.eps).log1p().sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Return the larger root above the threshold."""
        mu, eps = self.lam * step, self.eps

        def survivors(x: Tensor) -> Tensor:
            # The two forms are equal; each avoids cancellation on its own side of ε. The square root of (x+ε)² − 4μ is
            # computed as that of (x−ε)² + 4(xε−μ), or by factors, because the square of a huge x overflows.
            gap = x * eps - mu
            below = 2 * gap / (torch.hypot(eps - x, 2 * gap.clamp_min(0).sqrt()) + (eps - x))
            root = (x + eps - 2 * sqrt(mu)).clamp_min(0).sqrt() * (x + eps + 2 * sqrt(mu)).sqrt()
            return torch.where(x < eps, below, (x - eps) / 2 + root / 2).clamp_min(0)

        return shrink(w, self.threshold(step), survivors)

    def threshold(self, step: float) -> float:
        """Return μ/ε, or the |w| at which the jump happens."""
        m = self.lam * step / self.eps**2
        if m <= 1:
            return self.eps * m
        return self.eps * _threshold_at(_root(_penalty_at, m, high=2 * m))

    def with_threshold(self, t: float, step: float) -> Self:
        """Solve the threshold for λ in the regime that contains t."""
        x = t / self.eps
        m = x if x <= 1 else _penalty_at(_root(_threshold_at, x, high=x))
        return replace(self, lam=m * self.eps**2 / step)


def _penalty_at(jump: float) -> float:
    """Return M(U) = (U²/2)/(log(1+U) − U/(1+U)), the μ/ε² for which the jump ends at U."""
    if jump < 1:
        # log(1+U) − U/(1+U) cancels for small U; with z = U/(2+U) it is 2z²/(1+z) + 2Σ zⁿ/n over n = 3, 5, 7, …
        z = jump / (2 + jump)
        return jump**2 / 4 / (z * z / (1 + z) + sum(z**n / n for n in range(3, 36, 2)))
    return jump**2 / 2 / (log1p(jump) - jump / (1 + jump))


def _threshold_at(jump: float) -> float:
    """Return T(U) = U + M(U)/(1+U), the threshold over ε for which the jump ends at U."""
    return jump + _penalty_at(jump) / (1 + jump)


def _root(increasing: Callable[[float], float], target: float, *, high: float) -> float:
    """Return the U in [0, high] with increasing(U) = target, to the last bit."""
    low = 0.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if increasing(middle) < target else (low, middle)
    return high
