"""Whether u is a critical point of f + λP: the conditions of each penalty of the paper, written out.

They depend on nothing but the penalties' formulas, so a wrong proximal operator cannot satisfy them by its own measure.
"""

from math import sqrt

import torch
from torch import Tensor

from rvsm.penalties import L0, L1, Penalty, TransformedL1


def residual(penalty: Penalty, u: Tensor, gradient: Tensor, *, beta: float) -> Tensor:
    """Return by how much each row of u violates the conditions of a limit at α = 0, in the largest norm.

    On the support of u: ∇f(u) = −λP'(u). Off it: |∇f(u)| ≤ βt, t the threshold. That is λ for ℓ1 and √(2λβ) for ℓ0; it
    is never above λP'(0+), so u is a critical point of f + λP.

    >>> u, gradient = torch.tensor([[2.0, 0.0]]), torch.tensor([[-0.5, 0.7]])
    >>> [round(float(residual(one, u, gradient, beta=1.0)), 6) for one in (L1(lam=0.5), L1(lam=0.6), L0(lam=0.5))]
    [0.2, 0.1, 0.5]
    """
    on = (gradient + u.sign() * _slope(penalty, u.abs())).abs()
    off = (gradient.abs() - largest_off(penalty, beta=beta)).clamp_min(0.0)
    return torch.where(u == 0, off, on).amax(dim=-1)


def largest_off(penalty: Penalty, *, beta: float) -> float:
    """Return βt, the largest |∇f(u)| that an entry outside the support may have at a limit.

    >>> largest_off(L1(lam=0.3), beta=0.1), largest_off(L0(lam=0.5), beta=4.0)
    (0.3, 2.0)
    """
    if isinstance(penalty, L1):
        return penalty.lam
    if isinstance(penalty, L0):
        return sqrt(2 * penalty.lam * beta)
    a, mu = _transformed(penalty).a, penalty.lam / beta
    jumps = mu > a * a / (2 * (a + 1))
    return beta * (sqrt(2 * mu * (a + 1)) - a / 2) if jumps else penalty.lam * (a + 1) / a


def _slope(penalty: Penalty, size: Tensor) -> Tensor:
    """Return λP' at sizes above zero."""
    if isinstance(penalty, L1):
        return torch.full_like(size, penalty.lam)
    if isinstance(penalty, L0):
        return torch.zeros_like(size)
    a = _transformed(penalty).a
    return penalty.lam * (a + 1) * a / (a + size).square()


def _transformed(penalty: Penalty) -> TransformedL1:
    if not isinstance(penalty, TransformedL1):
        raise TypeError(f"the conditions are known of L1, L0 and TransformedL1 but the penalty is {penalty!r}")
    return penalty
