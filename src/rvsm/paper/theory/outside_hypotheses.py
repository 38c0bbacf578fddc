"""Maps of what happens outside the hypotheses; plain tensors, ready to be drawn."""

from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor

from rvsm.paper.theory.bounds import beta_bound
from rvsm.paper.theory.network import curvature
from rvsm.paper.theory.problems import PENALTIES, named, starts, truths
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.trajectory import Setting


@dataclass(frozen=True)
class AngleMap:
    """The limit's angle over β and the start.

    Attributes:
        multiples: β over its bound for the start's own δ = π − θ⁰, [M].
        margins: δ = π − θ⁰, [A].
        theta: the largest θ̄ of all seeds, [M, A].
        exceeded: the fraction of seeds with θ̄ ≥ δ, [M, A].
        empty: the fraction of seeds with ū = 0, [M, A].
        seeds: how many seeds there are in each cell.

    """

    multiples: Tensor
    margins: Tensor
    theta: Tensor
    exceeded: Tensor
    empty: Tensor
    seeds: int


def angle_map(
    *,
    penalty: str = "l1",
    k: int = 12,
    d: int = 10,
    multiples: int = 12,
    margins: int = 12,
    seeds: int = 12,
    steps: int = 400,
) -> AngleMap:
    """Map θ̄ over β/bound and π − θ⁰: inside the theorem at multiples ≤ 1, far outside at 100.

    Args:
        penalty: "l1", "l0" or "tl1".
        k: the number of patches.
        d: the dimension.
        multiples: how many multiples of the bound, from 0.3 to 100.
        margins: how many starting angles, from δ = .05 to 1.5.
        seeds: how many truths and starts in each cell.
        steps: how many steps.

    """
    generator = torch.Generator().manual_seed(12)
    factors = torch.logspace(-0.5, 2, multiples, dtype=torch.float64)
    deltas = torch.linspace(0.05, 1.5, margins, dtype=torch.float64)
    truth = truths(seeds, d, generator)
    settings, begun = [], []
    for factor in factors.tolist():
        for delta in deltas.tolist():
            beta = factor * beta_bound(k=k, delta=delta)
            made = named(penalty, 0.5 / sqrt(d) * beta)
            settings.append(Setting(made, k=k, beta=beta, eta=1 / (beta + float(curvature(k)))))
            theta = torch.full((seeds,), pi - delta, dtype=torch.float64)
            begun.append(starts(truth, theta, torch.ones(seeds, dtype=torch.float64), generator))
    copies, begun_at = truth.expand(len(settings), -1, -1), torch.stack(begun)
    path = simulate(settings, copies, begun_at, steps=steps, every=steps, tolerance=1e-9, empty_ok=True)
    theta = path.theta[-1].view(multiples, margins, seeds)
    exceeded = (theta >= deltas.unsqueeze(-1)).double().mean(dim=-1)
    empty = (path.support[-1] == 0).double().mean(dim=-1).view(multiples, margins)
    return AngleMap(factors, deltas, theta.amax(dim=-1), exceeded, empty, seeds)


@dataclass(frozen=True)
class ThresholdStudy:
    """What λ/β does, inside and beyond 1/√d.

    Attributes:
        shares: λ/β times √d, [M]; the theorem needs < 1.
        penalties: the names, P of them.
        sparsity: the mean fraction of zeros of ū, [P, M].
        empty: the fraction of runs with ū = 0, [P, M].
        error_w: the mean ‖w̄ − w*‖, [P, M].
        error_u: the mean ‖ū − w*‖, [P, M].
        theta: the largest θ̄, [P, M].

    """

    shares: Tensor
    penalties: tuple[str, ...]
    sparsity: Tensor
    empty: Tensor
    error_w: Tensor
    error_u: Tensor
    theta: Tensor


def threshold_study(*, k: int = 4, d: int = 10, points: int = 16, seeds: int = 20, steps: int = 500) -> ThresholdStudy:
    """Run λ/β from .1/√d to 4/√d with each penalty, β at its bound for δ = 1."""
    generator = torch.Generator().manual_seed(13)
    truth = torch.randn(seeds, d, generator=generator, dtype=torch.float64)
    truth = truth / truth.norm(dim=-1, keepdim=True)
    theta = 2.0 * torch.rand(seeds, generator=generator, dtype=torch.float64)
    start = starts(truth, theta, torch.ones(seeds, dtype=torch.float64), generator)
    shares = torch.logspace(-1, 0.6, points, dtype=torch.float64)
    beta = beta_bound(k=k, delta=1.0)
    eta = 1 / (beta + float(curvature(k)))
    settings = [
        Setting(make(share / sqrt(d) * beta), k=k, beta=beta, eta=eta)
        for make in PENALTIES.values()
        for share in shares.tolist()
    ]
    path = simulate(settings, truth, start, steps=steps, every=steps, tolerance=1e-9, empty_ok=True)
    shape = (len(PENALTIES), points, seeds)
    support = path.support[-1].view(shape)
    return ThresholdStudy(
        shares=shares,
        penalties=tuple(PENALTIES),
        sparsity=1 - support.double().mean(dim=-1) / d,
        empty=(support == 0).double().mean(dim=-1),
        error_w=(path.w[-1] - truth).norm(dim=-1).view(shape).mean(dim=-1),
        error_u=(path.u[-1] - truth).norm(dim=-1).view(shape).mean(dim=-1),
        theta=path.theta[-1].view(shape).amax(dim=-1),
    )


@dataclass(frozen=True)
class OppositeStudy:
    """Starts at, and close to, the angle π.

    Attributes:
        offsets: π − θ⁰, [M]; the last is 0 exactly.
        steps: the steps until θ < π/2, [M, seeds]; −1 if it never happens.
        theta: the last θ, [M, seeds].
        norm: the last ‖w‖, [M, seeds].

    """

    offsets: Tensor
    steps: Tensor
    theta: Tensor
    norm: Tensor


def start_at_pi(
    *, k: int = 4, d: int = 6, seeds: int = 8, penalty: str = "l1", steps: int = 800, smallest: int = 12
) -> OppositeStudy:
    """Start at π − ε: the saddle holds w for longer the smaller ε is; at ε = 0 only thresholding can turn it.

    Args:
        k: the number of patches.
        d: the dimension.
        seeds: how many truths.
        penalty: "l1", "l0" or "tl1".
        steps: how many steps.
        smallest: ε goes down to ten to minus this.

    """
    generator = torch.Generator().manual_seed(14)
    offsets = torch.cat(
        [torch.logspace(-1, -smallest, smallest, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)]
    )
    truth = truths(seeds, d, generator)
    beta = 0.5 * beta_bound(k=k, delta=1.0)
    setting = Setting(named(penalty, 0.3 / sqrt(d) * beta), k=k, beta=beta, eta=1 / (beta + float(curvature(k))))
    ones = torch.ones(seeds, dtype=torch.float64)
    begun = torch.stack([starts(truth, (pi - offset) * ones, ones, generator) for offset in offsets])
    begun[-1] = -truth
    path = simulate([setting] * len(offsets), truth.expand(len(offsets), -1, -1), begun, steps=steps, tolerance=1e-12)
    near = path.theta < pi / 2
    first = torch.where(near.any(dim=0), near.int().argmax(dim=0), -1)
    return OppositeStudy(offsets, first, path.theta[-1], path.norm[-1])
