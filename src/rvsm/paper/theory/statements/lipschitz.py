"""Lemmas 2 and 4: Lipschitz constants of the gradient, the bound on f that follows, and the geometry of the proof."""

from math import pi

import torch
from torch import Tensor

from rvsm.paper.theory import network as net
from rvsm.paper.theory.bounds import norm_floor
from rvsm.paper.theory.problems import starts
from rvsm.paper.theory.statements.descent import ROUNDING
from rvsm.paper.theory.sweep import Sweep, column
from rvsm.paper.theory.verdict import Verdict, check


def lipschitz_iterates(sweep: Sweep) -> Verdict:
    """Compare the norms and the quotients along all runs with the bounds that the start gives for all t."""
    runs = sweep.proof
    k, first = column(runs, "k"), torch.cat([net.size(part.start) for part in runs])
    least, most = torch.minimum(first, norm_floor(k=k, beta=column(runs, "beta"))), first.clamp_min(1.0)
    above, under = column(runs, "norm_min") - least, most - column(runs, "norm_max")
    _, b = net.coefficients(k)
    bound = net.curvature(k) + (b / k**2 + 1 / k) / least
    ratio = column(runs, "lipschitz")
    return Verdict(
        where="Lemma 2",
        claim="a global L exists with ‖∇f(wᵗ)−∇f(wᵗ⁺¹)‖ ≤ L‖wᵗ−wᵗ⁺¹‖ for all t",
        printed=check(1 - ratio / bound) & check(above, tolerance=1e-12) & check(under, tolerance=1e-12),
        evidence=f"{len(ratio)} runs: quotients ≤ {ratio.max():.3f}, at most {(ratio / bound).max():.3f}"
        f" of L = L⁺ + (W/M)(B/k²+1/k), M = min(‖w⁰‖, WB/(A+βk²)); in all steps ‖wᵗ‖ − M ≥"
        f" {above.min():.0e} and max(‖w⁰‖, W) − ‖wᵗ‖ ≥ {under.min():.0e}",
    )


def quadratic_bound(sweep: Sweep) -> Verdict:
    """Compare f along all runs with its quadratic bound, for the smallest L that can do."""
    excess = column(sweep.proof, "quadratic")
    return Verdict(
        where="Display after Lemma 2",
        claim="f(wᵗ⁺¹)−f(wᵗ) ≤ ⟨∇f(wᵗ), wᵗ⁺¹−wᵗ⟩ + (L/2)‖wᵗ⁺¹−wᵗ‖² for all t",
        printed=check(ROUNDING - excess),
        evidence=f"{len(excess)} runs, all steps, with L = L⁺, the least there is: the left side exceeds the right by"
        f" ≤ {excess.max():.1e}",
    )


def triangle(sweep: Sweep) -> Verdict:
    """Turn a point C about the axis of w* into the half-plane of A, which gives B; compare the edges of A, B, C."""
    generator = torch.Generator().manual_seed(16)
    count, ratios = 2000 if sweep.quick else 40_000, []
    for d in (3, 10):
        axis = torch.zeros(count, d, dtype=torch.float64)
        axis[:, 0] = 1.0
        theta = pi * torch.rand(2, count, generator=generator, dtype=torch.float64)
        norm = 10 ** (2 * torch.rand(2, count, generator=generator, dtype=torch.float64) - 1)
        # The worst case: A on the axis, in the plane of the circle of B and C.
        theta[0, : count // 4], norm[0, : count // 4] = 1e-9, (theta[1].cos() * norm[1]).abs()[: count // 4]
        a, c = (starts(axis, theta[i], generator, norm=norm[i]) for i in (0, 1))
        across = net.unit(torch.cat([torch.zeros(count, 1, dtype=torch.float64), a[:, 1:]], dim=-1))
        b = norm[1].unsqueeze(-1) * (theta[1].cos().unsqueeze(-1) * axis + theta[1].sin().unsqueeze(-1) * across)
        ratios.append((net.size(a - b) + net.size(b - c)) / net.size(a - c))
    ratio = torch.cat(ratios)
    return Verdict(
        where="Proof of Lemma 2, eq. (triangle)",
        claim="|AB| + |BC| ≤ L₃|AC| for some constant L₃, with A, B, C the tips of wᵗ, vᵗ⁺¹, wᵗ⁺¹",
        printed=check(3 - ratio, tolerance=1e-9),
        evidence=f"{len(ratio)} triples in 3 and 10 dimensions: (|AB|+|BC|)/|AC| ≤ {ratio.max():.4f}; L₃ = 3"
        " will do, for B is the point of its circle that is closest to A, so |AB| ≤ |AC|",
    )


def lipschitz_coplanar(sweep: Sweep) -> Verdict:
    """Sample pairs in the half-plane, near and far from each other."""
    ratio, bound, sharp = _lipschitz_pairs(2, 4000 if sweep.quick else 60_000, half_plane=True)
    return Verdict(
        where="Lemma 4",
        claim="‖∇f(w₁)−∇f(w₂)‖ ≤ (1+3‖w*‖/M)‖w₁−w₂‖ for w₁, w₂, w* in a half-plane with norms ≥ M",
        printed=check(1 - ratio / bound),
        evidence=f"{len(ratio)} pairs: at most {(ratio / bound).max():.2f} of the constant, which is loose;"
        f" {(ratio / sharp).max():.3f} of L⁺ + (W/M)(B/k² + 1/k)",
    )


def lipschitz_everywhere(sweep: Sweep) -> Verdict:
    """Sample pairs anywhere, for the sharper constant that needs no common plane."""
    ratio, _, sharp = _lipschitz_pairs(5, 4000 if sweep.quick else 60_000, half_plane=False)
    return Verdict(
        where="Lemma 4, sharpened",
        claim="‖∇f(w₁)−∇f(w₂)‖ ≤ (L⁺ + (‖w*‖/M)(B/k²+1/k))‖w₁−w₂‖ for all w₁, w₂ with norms ≥ M",
        printed=check(1 - ratio / sharp),
        evidence=f"{len(ratio)} pairs in 5 dimensions: at most {(ratio / sharp).max():.3f} of the constant",
    )


def _lipschitz_pairs(d: int, count: int, *, half_plane: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return quotients of pairs, the paper's constant and the sharp one."""
    generator = torch.Generator().manual_seed(4)
    truth = torch.zeros(d, dtype=torch.float64)
    truth[0] = 1.0
    m = torch.tensor([0.05, 0.3, 1.0], dtype=torch.float64)[torch.randint(3, (count,), generator=generator)]
    k = torch.tensor([1.0, 2.0, 4.0, 12.0], dtype=torch.float64)[torch.randint(4, (count,), generator=generator)]

    def point(near: Tensor | None) -> Tensor:
        v = torch.randn(count, d, generator=generator, dtype=torch.float64)
        if near is not None:
            size = 10.0 ** (-4 * torch.rand(count, 1, generator=generator, dtype=torch.float64))
            v = near / near.norm(dim=-1, keepdim=True) + size * v
        if half_plane:
            v[:, 1] = v[:, 1].abs()
        r = m * (1 + torch.rand(count, generator=generator, dtype=torch.float64) ** 8)
        return net.unit(v) * r.unsqueeze(-1)

    first = point(None)
    second = point(first)
    ratio = (net.gradient(first, truth, k=k) - net.gradient(second, truth, k=k)).norm(dim=-1)
    ratio = ratio / (first - second).norm(dim=-1)
    _, b = net.coefficients(k)
    return ratio, 1 + 3 / m, net.curvature(k) + (b / k**2 + 1 / k) / m
