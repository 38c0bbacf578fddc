"""λP(u) of each row: the shipped penalties sum over a whole tensor, but here every row is a run of its own.

The formulas are written down again on purpose: they depend on nothing but the paper, so a wrong proximal operator
cannot hide behind a wrong value. Any other penalty goes through its own ``value``, row by row.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rvsm.penalties import L0, L1, Penalty, TransformedL1

_FORMULAS: dict[type[Penalty], Callable[..., Tensor]] = {
    L0: lambda penalty, u: u.count_nonzero(dim=-1).double(),
    L1: lambda penalty, u: u.abs().sum(dim=-1),
    TransformedL1: lambda penalty, u: ((penalty.a + 1) * u.abs() / (penalty.a + u.abs())).sum(dim=-1),
}


def penalty_values(penalties: Sequence[Penalty], u: Tensor) -> Tensor:
    """Return λP(u) for each row of u, whose rows are divided evenly among the penalties, in order.

    >>> penalty_values([L1(lam=2.0), L0(lam=0.5)], torch.tensor([[1.0, -2.0], [0.0, 3.0]])).tolist()
    [6.0, 0.5]
    """
    blocks = u.view(len(penalties), -1, u.shape[-1])
    values = torch.empty(blocks.shape[:2], dtype=torch.float64)
    alike: dict[tuple[object, ...], list[int]] = {}
    for i, penalty in enumerate(penalties):
        alike.setdefault((type(penalty), getattr(penalty, "a", None)), []).append(i)
    for places in alike.values():
        first, chosen = penalties[places[0]], blocks if len(places) == len(penalties) else blocks[places]
        if type(first) in _FORMULAS:
            lam = torch.tensor([penalties[i].lam for i in places], dtype=torch.float64)
            values[places] = lam.unsqueeze(-1) * _FORMULAS[type(first)](first, chosen).double()
        else:
            values[places] = torch.stack(
                [torch.stack([penalties[i].value(row) for row in blocks[i]]).double() for i in places]
            )
    return values.flatten()
