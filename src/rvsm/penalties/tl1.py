"""The transformed ℓ1 penalty, between ℓ0 (a → 0) and ℓ1 (a → ∞)."""

from dataclasses import dataclass, replace
from math import cbrt, inf, sqrt
from typing import Self

import torch
from torch import Tensor

from rvsm.penalties.base import Penalty, full_precision, shrink


@dataclass(frozen=True)
class TransformedL1(Penalty):
    """λ·Σ(a+1)|u_i|/(a+|u_i|).

    With μ = λ·step and c = μa(a+1), a non-zero result u solves u = |w| − c/(a+u)². If μ ≤ a²/(2(a+1)), the threshold is
    μ(a+1)/a, and u leaves zero continuously. Otherwise it is √(2μ(a+1)) − a/2, and u jumps to √(2μ(a+1)) − a.

    The paper's closed form for u uses the cosine of an arc cosine. Newton's method from u = |w| reaches the same number
    in two or three steps. It is far cheaper, and avoids the cosine's loss of precision for large a.

    >>> import torch
    >>> TransformedL1(lam=0.1, a=1.0).prox(torch.tensor([-1.0, 0.2, 0.1]), step=1.0)
    tensor([-0.9473,  0.0000,  0.0000])

    Reference: Zhang & Xin, "Minimization of transformed L1 penalty", 2018; Dinh & Xin, Corollary 1.2.

    Args:
        a: the shape of the penalty: close to ℓ0 if small, close to ℓ1 if large.

    """

    a: float = 1.0

    def value(self, u: Tensor) -> Tensor:
        """Return λ·Σ(a+1)|u|/(a+|u|)."""
        x = full_precision(u).abs()
        return self.lam * ((self.a + 1) * x / (self.a + x)).sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Return the largest root of u = |w| − c/(a+u)² above the threshold, by Newton's method."""
        a, t, c = self.a, self.threshold(step), self.lam * step * self.a * (self.a + 1)
        eps = torch.finfo(full_precision(w).dtype).eps
        iterations = _newton_iterations(a, c, t, eps)
        # The residual is increasing and convex to the right of this point, so Newton's steps decrease to the root
        # monotonically. Rounding could move one past this point, where the slope changes its sign.
        turning = max(cbrt(2 * c) - a, 0.0)

        def survivors(x: Tensor) -> Tensor:
            u = x
            for _ in range(iterations):
                y = u + a
                pulled = c / (y * y)
                slope = (1 - 2 * pulled / y).clamp_min_(sqrt(eps))
                u = (u - (u - x + pulled) / slope).clamp_min_(turning)
            return u

        return shrink(w, t, survivors)

    def threshold(self, step: float) -> float:
        """Return μ(a+1)/a or √(2μ(a+1)) − a/2, which meet at a/2."""
        mu, a = self.lam * step, self.a
        if mu <= a * a / (2 * (a + 1)):
            return mu * (a + 1) / a
        return sqrt(2 * mu * (a + 1)) - a / 2

    def with_threshold(self, t: float, step: float) -> Self:
        """Solve the threshold for λ in the regime that contains t."""
        a = self.a
        mu = t * a / (a + 1) if t <= a / 2 else (t + a / 2) ** 2 / (2 * (a + 1))
        return replace(self, lam=mu / step)


def _newton_iterations(a: float, c: float, t: float, eps: float) -> int:
    """Return how many Newton steps the slowest entry needs to reach full precision, relative to |w|.

    Relative to |w|, the pull c/(a+u)² is largest at the threshold t. One scalar trial there therefore bounds the work
    for a whole tensor, without reading its entries. At c/(a+t)³ = 4/27 the root is double, and each step only halves
    the error, until it is as small as it can be for a double root.
    """
    u, before = t, inf
    for iteration in range(64):
        pulled = c / (a + u) ** 2
        slope = max(1 - 2 * pulled / (a + u), sqrt(eps))
        following = u - (u - t + pulled) / slope
        # Exact steps only get shorter; a step that does not is due to rounding, and could oscillate indefinitely.
        if abs(following - u) <= eps * t or abs(following - u) >= before:
            return iteration
        u, before = following, abs(following - u)
    return 64
