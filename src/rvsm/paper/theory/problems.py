"""The inputs of runs: the paper's penalties, settings with the standard step, truths w* and starting points w⁰."""

from collections.abc import Callable

import torch
from torch import Tensor

from rvsm.paper.theory.network import curvature, unit
from rvsm.paper.theory.trajectory import Setting
from rvsm.penalties import L0, L1, Penalty, TransformedL1

PENALTIES: dict[str, Callable[[float], Penalty]] = {
    "l1": lambda lam: L1(lam=lam),
    "l0": lambda lam: L0(lam=lam),
    "tl1": lambda lam: TransformedL1(lam=lam, a=1.0),
}
"""The penalties of the paper, by their λ."""


def standard(name: str, *, k: float, beta: float, mu: float, step: float = 1.0) -> Setting:
    """Return the setting of a penalty of the paper with λ = μβ and η = step/(β + L⁺); step 1 is the proof's largest.

    >>> standard("l1", k=1, beta=0.25, mu=2.0)
    Setting(penalty=L1(lam=0.5), k=1, beta=0.25, eta=0.8)
    """
    return Setting(PENALTIES[name](mu * beta), k=k, beta=beta, eta=step / (beta + float(curvature(k))))


def truths(seeds: int, d: int, generator: torch.Generator) -> Tensor:
    """Return unit vectors: dense, sparse, and of equal entries, in turn."""
    w = torch.randn(seeds, d, generator=generator, dtype=torch.float64)
    for i in range(seeds):
        if i % 3 == 1:
            w[i, max(1, d // 4) :] = 0
        elif i % 6 == 2:
            w[i] = w[i].sign()
    return unit(w)


def starts(truth: Tensor, theta: Tensor | float, generator: torch.Generator, *, norm: Tensor | None = None) -> Tensor:
    """Return vectors at the given angles from the truths, in random planes; their norm is 1 by default."""
    across = torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    axis = unit(truth)
    for _ in range(2):  # the second time removes the rounding error of the first, large for almost parallel vectors
        across = unit(across - (across * axis).sum(dim=-1, keepdim=True) * axis)
    theta = torch.as_tensor(theta, dtype=torch.float64).expand(truth.shape[:-1]).unsqueeze(-1)
    directions = theta.cos() * axis + theta.sin() * across
    return directions if norm is None else norm.unsqueeze(-1) * directions
