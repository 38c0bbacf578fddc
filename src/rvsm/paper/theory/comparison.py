"""RVSM and ADMM on the same truths: zeros, losses and distances of their possible outputs."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from rvsm.paper.theory.bounds import beta_bound
from rvsm.paper.theory.network import loss, unit
from rvsm.paper.theory.problems import PENALTIES, standard, starts
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.trajectory import MethodName, Trajectory

OUTPUTS = ("u", "masked", "admm")
"""RVSM's u, w on the support of RVSM's u, and ADMM's u."""

D, K = 20, 4


def compared(
    method: MethodName, *, seeds: int, shares: Sequence[float] = (0.3,), steps: int = 400
) -> tuple[Trajectory, Tensor]:
    """Run one method with each penalty on truths of 5 large and 15 small entries; also return the truths.

    ``shares`` are λ/β as fractions of 1/√d. The settings are all penalties with the first share, then the second, ….
    """
    generator = torch.Generator().manual_seed(20)
    truth = torch.randn(seeds, D, generator=generator, dtype=torch.float64)
    truth[:, 5:] *= 0.1
    truth = unit(truth)
    start = starts(truth, 2.0 * torch.rand(seeds, generator=generator, dtype=torch.float64), generator)
    beta = beta_bound(k=K, delta=1.0)
    settings = [standard(name, k=K, beta=beta, mu=share / sqrt(D)) for share in shares for name in PENALTIES]
    return simulate(settings, truth, start, steps=steps, every=steps, method=method), truth


def losses(w: Tensor, truth: Tensor) -> Tensor:
    """Return f of runs [..., n, d] with the n truths of their seeds."""
    return loss(w.flatten(0, -2), truth.expand_as(w).flatten(0, -2), k=K).view(w.shape[:-1])


class SparsityStudy(NamedTuple):
    """Zeros and losses of the O outputs over M values of λ."""

    penalties: tuple[str, ...]  # the P names
    sparsity: Tensor  # the mean fraction of zeros, [O, P, M]
    loss: Tensor  # the mean f, [O, P, M]

    def loss_at_equal_sparsity(self, output: str, rival: str) -> dict[str, Tensor]:
        """Return the ratio of f of an output to f of its rival with as many zeros, by penalty, for each comparable λ.

        The rival's log f is interpolated between its own λ; a λ outside the range of its zeros is not comparable.
        """
        o, r = OUTPUTS.index(output), OUTPUTS.index(rival)
        ratios = {}
        for p, name in enumerate(self.penalties):
            zeros, known = self.sparsity[o, p], self.sparsity[r, p]
            order = known.argsort()
            x, y = known[order], self.loss[r, p].log()[order]
            inside = (zeros >= x[0]) & (zeros <= x[-1])
            right = torch.searchsorted(x, zeros[inside]).clamp(1, len(x) - 1)
            weight = (zeros[inside] - x[right - 1]) / (x[right] - x[right - 1]).clamp_min(1e-12)
            rivals = y[right - 1] + weight * (y[right] - y[right - 1])
            ratios[name] = (self.loss[o, p][inside].log() - rivals).exp()
        return ratios


def sparsity_study(shares: Sequence[float], *, seeds: int, steps: int) -> SparsityStudy:
    """Compare u, the masked w and ADMM's u over λ/β·√d, on truths of 5 large and 15 small entries."""
    ours, truth = compared("rvsm", seeds=seeds, shares=shares, steps=steps)
    theirs, _ = compared("admm", seeds=seeds, shares=shares, steps=steps)
    u = ours.u[-1]
    given = torch.stack([u, torch.where(u == 0, 0.0, ours.w[-1]), theirs.u[-1]])

    def by_penalty(rows: Tensor) -> Tensor:
        """[O, M·P, seeds] → [O, P, M]."""
        return rows.mean(dim=-1).view(len(OUTPUTS), len(shares), len(PENALTIES)).transpose(1, 2)

    zeros = (given == 0).double().mean(dim=-1)
    return SparsityStudy(tuple(PENALTIES), by_penalty(zeros), by_penalty(losses(given, truth)))
