"""How the error of the limit grows with β: measured, split into its radial and angular part, and fitted."""

from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from rvsm.paper.theory.network import curvature, size, unit
from rvsm.paper.theory.problems import PENALTIES, starts
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.trajectory import Setting


def error_exponents(name: str, *, quick: bool = False) -> Tensor:
    """Return the fitted exponent of β in ‖w̄ − w*‖ for some truths, k and d."""
    betas = torch.logspace(-4, -1.5, 4 if quick else 8, dtype=torch.float64)
    fitted = []
    for d, k in ((6, 2),) if quick else ((2, 4), (6, 2), (20, 4)):
        errors = limit_errors(name, betas, d=d, k=k).total
        some = (errors > 1e-7).all(dim=0)  # ℓ0 makes no error where no entry is below its threshold
        x = betas.log() - betas.log().mean()
        fitted.append((x.unsqueeze(-1) * errors[:, some].log()).sum(dim=0) / x.square().sum())
    return torch.cat(fitted)


class LimitErrors(NamedTuple):
    """‖w̄ − w*‖ and its two parts, total² = radial² + angular², each [betas, seeds]."""

    total: Tensor
    radial: Tensor
    angular: Tensor


def limit_errors(name: str, betas: Tensor, *, d: int, k: int, mu: float | None = None, seeds: int = 8) -> LimitErrors:
    """Return the errors of the limit for each β and truth, at a fixed μ = λ/β (by default .5/√d).

    The radial part is |‖w̄‖ − ‖w*‖|, the angular one 2√(‖w̄‖‖w*‖)·sin(θ̄/2).
    """
    generator = torch.Generator().manual_seed(d)
    truth = unit(torch.randn(seeds, d, generator=generator, dtype=torch.float64))
    start = starts(truth, torch.full((seeds,), 0.2).double(), torch.ones(seeds).double(), generator)
    fixed = 0.5 / sqrt(d) if mu is None else mu
    settings = [
        Setting(PENALTIES[name](fixed * beta), k=k, beta=beta, eta=1 / (beta + float(curvature(k))))
        for beta in betas.tolist()
    ]
    path = simulate(settings, truth, start, steps=1500, every=1500, tolerance=1e-12)
    norm, theta = path.norm[-1], path.theta[-1]
    return LimitErrors(size(path.w[-1] - truth), (norm - 1).abs(), 2 * norm.sqrt() * (theta / 2).sin())
