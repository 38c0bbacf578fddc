"""What runs are made of: the paper's penalties, truths w* and starting points w⁰."""

from collections.abc import Callable

import torch
from torch import Tensor

from rvsm.paper.theory.network import unit
from rvsm.penalties import L0, L1, Penalty, TransformedL1

PENALTIES: dict[str, Callable[[float], Penalty]] = {
    "l1": lambda lam: L1(lam=lam),
    "l0": lambda lam: L0(lam=lam),
    "tl1": lambda lam: TransformedL1(lam=lam, a=1.0),
}
"""The penalties of the paper, by their λ."""


def named(name: str, lam: float) -> Penalty:
    """Return a penalty of the paper by its name.

    >>> named("l1", 0.5)
    L1(lam=0.5)
    """
    if name not in PENALTIES:
        raise ValueError(f"unknown penalty {name!r}; choose from {', '.join(PENALTIES)}")
    return PENALTIES[name](lam)


def truths(seeds: int, d: int, generator: torch.Generator) -> Tensor:
    """Return unit vectors: dense, sparse, and of equal entries, in turn."""
    w = torch.randn(seeds, d, generator=generator, dtype=torch.float64)
    for i in range(seeds):
        if i % 3 == 1:
            w[i, max(1, d // 4) :] = 0
        elif i % 6 == 2:
            w[i] = w[i].sign()
    return unit(w)


def starts(truth: Tensor, theta: Tensor, norm: Tensor, generator: torch.Generator) -> Tensor:
    """Return vectors of the given norms at the given angles from the truths, in random planes."""
    across = torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    axis = unit(truth)
    for _ in range(2):  # the second time for the rounding error of the first, large where the two were almost parallel
        across = unit(across - (across * axis).sum(dim=-1, keepdim=True) * axis)
    return norm.unsqueeze(-1) * (theta.cos().unsqueeze(-1) * axis + theta.sin().unsqueeze(-1) * across)
