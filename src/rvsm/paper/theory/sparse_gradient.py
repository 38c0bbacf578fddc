"""Runs with the gradient at u, compared with RVSM's, with the gradient at w: same truths, starts, λ and β."""

from dataclasses import dataclass
from itertools import product
from math import pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from rvsm.paper.theory.bounds import beta_bound
from rvsm.paper.theory.network import curvature, gradient, loss, size
from rvsm.paper.theory.penalty_formulas import PenaltyValues, residual
from rvsm.paper.theory.problems import PENALTIES, standard, starts, truths
from rvsm.paper.theory.simulate import per_run, walk
from rvsm.paper.theory.trajectory import GradientPoint, Setting

K = 4


class Size(NamedTuple):
    """The number and length of the runs."""

    dimensions: tuple[int, ...]  # d
    seeds: int  # truths and starts of each setting
    steps: int  # the maximum with the theorem's β, where some runs never come to rest
    strong_steps: int  # the maximum with β = L⁺, where all runs come to rest, a few of them late
    shares: tuple[float, ...] = (0.9, 0.3)  # λ/β as fractions of 1/√d


FULL = Size((2, 10), 48, 300, 600)
QUICK = Size((5,), 6, 120, 120, (0.3,))

RESTED = 1e-6
"""The ‖∇f(v) + β(w − u)‖ below which a run is at rest."""


@dataclass(frozen=True)
class Ends:
    """The runs of one penalty and dimension, one row each."""

    penalty: str  # its name
    d: int
    settings: tuple[Setting, ...]  # one for each block of rows
    truth: Tensor  # w*
    start: Tensor  # w⁰
    u: Tensor  # u after the last step
    alive: Tensor  # whether u is not empty
    left: Tensor  # the last ‖∇f(v) + β(w − u)‖
    loss: Tensor  # f(u)
    masked: Tensor  # f of w on the support of u
    error: Tensor  # ‖u − w*‖
    critical: Tensor  # by how much u violates the conditions of a critical point of f + λP; NaN where u is empty
    rise: Tensor  # the largest increase of f(u) + λP(u) in a step whose gradient was taken at u
    excess: Tensor  # the largest excess of that increase over the bound for β ≥ L⁺, whatever the penalty
    excess_convex: Tensor  # the same over the bound for a convex penalty

    @property
    def zeros(self) -> Tensor:
        """The fraction of zeros of u."""
        return (self.u == 0).double().mean(dim=-1)

    @property
    def rested(self) -> Tensor:
        """Whether each run is at rest."""
        return self.left <= RESTED


def ends(at: GradientPoint, *, strong: bool, quick: bool) -> tuple[Ends, ...]:
    """Run each penalty from starts with θ⁰ ≤ π − 1 until it rests, or for as many steps as planned.

    β is L⁺ if it is strong, and otherwise the theorem's bound for δ = 1.
    """
    plan = QUICK if quick else FULL
    return tuple(_ends(name, d, at, strong, plan) for d, name in product(plan.dimensions, PENALTIES))


def _ends(name: str, d: int, at: GradientPoint, strong: bool, plan: Size) -> Ends:
    seeds, steps = plan.seeds, plan.strong_steps if strong else plan.steps
    strength = float(curvature(K)) if strong else beta_bound(k=K, delta=1.0)
    settings = [standard(name, k=K, beta=strength, mu=share / sqrt(d)) for share in plan.shares]
    generator = torch.Generator().manual_seed(2000 + d)
    truth = truths(seeds, d, generator)
    start = starts(truth, torch.linspace(0.05, 1, seeds, dtype=torch.float64) * (pi - 1), generator)

    beta, eta, k = (per_run(settings, name, seeds) for name in ("beta", "eta", "k"))
    high, values = curvature(k), PenaltyValues([s.penalty for s in settings])
    low = torch.full_like(k, -torch.inf)
    rise, excess, excess_convex = low, low, low
    last, objective = None, low
    for moment in walk(settings, truth, start, steps=steps, gradient=at, tolerance=RESTED / 100):
        before, objective = objective, moment.loss + values(moment.u)
        if at == "u" and last is not None and last.step:  # the first gradient is at w
            grown, moved = objective - before, moment.u - last.u
            along = (moved * (moment.w - last.w)).sum(dim=-1)
            square = moved.square().sum(dim=-1)
            rise = torch.maximum(rise, grown)
            excess = torch.maximum(excess, grown + (1 / eta - beta) * along + (beta - high) / 2 * square)
            excess_convex = torch.maximum(excess_convex, grown + (1 / eta - high / 2) * square)
        last = moment
    assert last is not None
    truth, start = (x.expand(len(settings), -1, -1).flatten(0, 1) for x in (truth, start))
    u, alive = last.u, last.u.any(dim=-1)
    slope = gradient(torch.where(alive.unsqueeze(-1), u, truth), truth, k=k)
    blocks = zip(settings, torch.split(u, seeds), torch.split(slope, seeds), strict=True)
    critical = torch.cat([residual(s.penalty, one, there, beta=s.beta) for s, one, there in blocks])
    return Ends(
        penalty=name,
        d=d,
        settings=tuple(settings),
        truth=truth,
        start=start,
        u=u,
        alive=alive,
        left=last.stationarity,
        loss=loss(u, truth, k=k),
        masked=loss(torch.where(u == 0, 0.0, last.w), truth, k=k),
        error=size(u - truth),
        critical=torch.where(alive, critical, torch.nan),
        rise=rise,
        excess=excess,
        excess_convex=excess_convex,
    )
