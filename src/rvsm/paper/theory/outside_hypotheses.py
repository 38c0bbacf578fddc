"""Runs outside the hypotheses, as plain tensors for the pictures."""

from itertools import product
from math import pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from rvsm.paper.theory.bounds import beta_bound
from rvsm.paper.theory.network import size, unit
from rvsm.paper.theory.problems import PENALTIES, standard, starts, truths
from rvsm.paper.theory.simulate import simulate


class AngleMap(NamedTuple):
    """The limit's angle as a function of β and the start."""

    multiples: Tensor  # β over its bound for the start's own δ = π − θ⁰, [M]
    margins: Tensor  # δ = π − θ⁰, [A]
    theta: Tensor  # the largest θ̄ of all seeds, [M, A]
    empty: Tensor  # the fraction of seeds with ū = 0, [M, A]
    seeds: int  # truths and starts in each cell


def angle_map(*, multiples: int = 12, margins: int = 12, seeds: int = 12, steps: int = 400) -> AngleMap:
    """Map θ̄ over β/bound, from 0.3 to 100, and δ = π − θ⁰, from .05 to 1.5: ℓ1, k = 12, d = 10.

    The cells with β/bound ≤ 1 are inside the theorem.
    """
    k, d = 12, 10
    generator = torch.Generator().manual_seed(12)
    factors = torch.logspace(-0.5, 2, multiples, dtype=torch.float64)
    deltas = torch.linspace(0.05, 1.5, margins, dtype=torch.float64)
    truth = truths(seeds, d, generator)
    cells = list(product(factors.tolist(), deltas.tolist()))
    settings = [standard("l1", k=k, beta=f * beta_bound(k=k, delta=delta), mu=0.5 / sqrt(d)) for f, delta in cells]
    begun = torch.stack([starts(truth, pi - delta, generator) for _, delta in cells])
    copies = truth.expand(len(cells), -1, -1)
    path = simulate(settings, copies, begun, steps=steps, every=steps, tolerance=1e-9, empty_ok=True)
    theta = path.theta[-1].view(multiples, margins, seeds)
    empty = (path.support[-1] == 0).double().mean(dim=-1).view(multiples, margins)
    return AngleMap(factors, deltas, theta.amax(dim=-1), empty, seeds)


class ThresholdStudy(NamedTuple):
    """The effect of λ/β, below and above 1/√d, for each of the P penalties."""

    shares: Tensor  # λ/β times √d, [M]; the theorem needs < 1
    sparsity: Tensor  # the mean fraction of zeros of ū, [P, M]
    empty: Tensor  # the fraction of runs with ū = 0, [P, M]
    error_w: Tensor  # the mean ‖w̄ − w*‖, [P, M]
    error_u: Tensor  # the mean ‖ū − w*‖, [P, M]


def threshold_study(*, points: int = 16, seeds: int = 20, steps: int = 500) -> ThresholdStudy:
    """Run λ/β from .1/√d to 4/√d with each penalty, β at its bound for δ = 1: k = 4, d = 10."""
    k, d = 4, 10
    generator = torch.Generator().manual_seed(13)
    truth = unit(torch.randn(seeds, d, generator=generator, dtype=torch.float64))
    start = starts(truth, 2.0 * torch.rand(seeds, generator=generator, dtype=torch.float64), generator)
    shares = torch.logspace(-1, 0.6, points, dtype=torch.float64)
    beta = beta_bound(k=k, delta=1.0)
    each = product(PENALTIES, shares.tolist())
    settings = [standard(name, k=k, beta=beta, mu=share / sqrt(d)) for name, share in each]
    path = simulate(settings, truth, start, steps=steps, every=steps, tolerance=1e-9, empty_ok=True)

    def mean(rows: Tensor) -> Tensor:
        return rows.double().view(len(PENALTIES), points, seeds).mean(dim=-1)

    support = path.support[-1]
    errors = (mean(size(end - truth)) for end in (path.w[-1], path.u[-1]))
    return ThresholdStudy(shares, 1 - mean(support) / d, mean(support == 0), *errors)


class OppositeStudy(NamedTuple):
    """Starts at, and close to, the angle π."""

    offsets: Tensor  # π − θ⁰, [M]; the last is 0 exactly
    steps: Tensor  # the steps until θ < π/2, [M, seeds]; −1 if θ stays above
    theta: Tensor  # the last θ, [M, seeds]


def start_at_pi(*, seeds: int = 8, steps: int = 800, smallest: int = 12) -> OppositeStudy:
    """Start at π − ε, with ε from 0.1 to 10^−smallest, and at π: ℓ1, k = 4, d = 6.

    The smaller ε is, the longer w stays near the saddle; at ε = 0 only thresholding can turn it.
    """
    k, d = 4, 6
    generator = torch.Generator().manual_seed(14)
    offsets = torch.cat([torch.logspace(-1, -smallest, smallest, dtype=torch.float64), torch.zeros(1).double()])
    truth = truths(seeds, d, generator)
    setting = standard("l1", k=k, beta=0.5 * beta_bound(k=k, delta=1.0), mu=0.3 / sqrt(d))
    begun = torch.stack([starts(truth, pi - offset, generator) for offset in offsets])
    begun[-1] = -truth
    path = simulate([setting] * len(offsets), truth.expand(len(offsets), -1, -1), begun, steps=steps, tolerance=1e-12)
    near = path.theta < pi / 2
    first = torch.where(near.any(dim=0), near.int().argmax(dim=0), -1)
    return OppositeStudy(offsets, first, path.theta[-1])
