"""The penalties of the paper, written out again: λP(u) of each row, and whether u is a critical point of f + λP.

The formulas are taken from the paper and do not use the library's penalties. Otherwise an error in a proximal operator
could be hidden by the same error in its value.
"""

from collections.abc import Callable, Sequence
from math import sqrt

import torch
from torch import Tensor

from rvsm.penalties import L0, L1, Penalty, TransformedL1

_FORMULAS: dict[type[Penalty], Callable[..., Tensor]] = {
    L0: lambda penalty, u: u.count_nonzero(dim=-1).double(),
    L1: lambda penalty, u: u.abs().sum(dim=-1),
    TransformedL1: lambda penalty, u: ((penalty.a + 1) * u.abs() / (penalty.a + u.abs())).sum(dim=-1),
}


class PenaltyValues:
    """λP(u) for each row of u, whose rows are divided evenly among the penalties, in order.

    Every row is a separate run. For other penalties, their own ``value`` is called for each row. The penalties are
    sorted once: a simulation asks for the values at every step.
    """

    def __init__(self, penalties: Sequence[Penalty]) -> None:
        self._penalties = tuple(penalties)
        alike: dict[tuple[object, ...], list[int]] = {}
        for i, penalty in enumerate(penalties):
            alike.setdefault((type(penalty), getattr(penalty, "a", None)), []).append(i)
        self._alike = [(torch.tensor(places), self._of([penalties[i] for i in places])) for places in alike.values()]

    def __call__(self, u: Tensor) -> Tensor:
        """Return the values as float64."""
        blocks = u.view(len(self._penalties), -1, u.shape[-1])
        if len(self._alike) == 1:
            return self._alike[0][1](blocks).flatten()
        values = torch.empty(blocks.shape[:2], dtype=torch.float64)
        for places, value in self._alike:
            values[places] = value(blocks[places])
        return values.flatten()

    @staticmethod
    def _of(alike: Sequence[Penalty]) -> Callable[[Tensor], Tensor]:
        """Return λP as a function of blocks of rows, for penalties that differ only in λ."""
        first = alike[0]
        if (formula := _FORMULAS.get(type(first))) is None:
            return lambda blocks: torch.stack(
                [torch.stack([one.value(row) for row in block]) for one, block in zip(alike, blocks, strict=True)]
            ).double()
        lam = torch.tensor([one.lam for one in alike], dtype=torch.float64).unsqueeze(-1)
        return lambda blocks: lam * formula(first, blocks).double()


def penalty_values(penalties: Sequence[Penalty], u: Tensor) -> Tensor:
    """Return λP(u) for each row of u, as `PenaltyValues` does.

    >>> penalty_values([L1(lam=2.0), L0(lam=0.5)], torch.tensor([[1.0, -2.0], [0.0, 3.0]])).tolist()
    [6.0, 0.5]
    """
    return PenaltyValues(penalties)(u)


def residual(penalty: Penalty, u: Tensor, gradient: Tensor, *, beta: float) -> Tensor:
    """Return by how much each row of u violates the conditions of a limit at α = 0, in the maximum norm.

    On the support of u: ∇f(u) = −λP'(u). Off it: |∇f(u)| ≤ βt, where t is the threshold. βt is λ for ℓ1 and √(2λβ) for
    ℓ0. It never exceeds λP'(0+), so u is a critical point of f + λP.

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
    """Return λP' at positive magnitudes."""
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
