"""Lemmas 2, 4 and 5: Lipschitz constants of the gradient, the geometry of the proof, and the strip of norms."""

from collections.abc import Sequence
from math import pi

import torch
from torch import Tensor

from rvsm.paper.theory import network as net
from rvsm.paper.theory.bounds import norm_floor
from rvsm.paper.theory.problems import starts
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.statements.descent import ROUNDING
from rvsm.paper.theory.sweep import Sweep, column
from rvsm.paper.theory.trajectory import Setting, Trajectory
from rvsm.paper.theory.verdict import Verdict, check
from rvsm.penalties import L1

_AXIS = torch.tensor([1.0, 0.0], dtype=torch.float64)


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
    """Compare f along all runs with its quadratic bound, for the smallest possible L."""
    excess = column(sweep.proof, "quadratic")
    return Verdict(
        where="Display after Lemma 2",
        claim="f(wᵗ⁺¹)−f(wᵗ) ≤ ⟨∇f(wᵗ), wᵗ⁺¹−wᵗ⟩ + (L/2)‖wᵗ⁺¹−wᵗ‖² for all t",
        printed=check(ROUNDING - excess),
        evidence=f"{len(excess)} runs, all steps, with L = L⁺, the least there is: the left side exceeds the right by"
        f" ≤ {excess.max():.1e}",
    )


def triangle(sweep: Sweep) -> Verdict:
    """Rotate a point C about the axis of w* into the half-plane of A, which gives B; compare the sides of ABC."""
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
    """Sample pairs in the half-plane, close together and far apart."""
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


def closed_strip(sweep: Sweep) -> Verdict:
    """Run one patch from −w*, and many patches with β fixed and β → 0; then check the limits of the sweep."""
    one = simulate(Setting(L1(lam=0.01), k=1, beta=0.1, eta=0.5), _AXIS, -_AXIS, steps=60, empty_ok=True)
    sinking = _sinking()
    patches = (16, 256, 4096)
    fixed, smaller = (_widths(patches, betas) for betas in ([0.1] * 3, [k**-0.5 for k in patches]))
    runs = sweep.proof
    norm, k, beta = column(runs, "norm"), column(runs, "k"), column(runs, "beta")
    low = norm - norm_floor(k=k, beta=beta)
    return Verdict(
        where="Lemma 5",
        claim="for k ≥ 1, ‖wᵗ‖ ∈ [‖w*‖−M_k, ‖w*‖+M_k] for all t ≥ T, with M_k < ‖w*‖ and M_k → 0 as k → ∞",
        # M_k < ‖w*‖ means a positive norm, and M_k → 0 a smaller strip for more patches.
        printed=check(one.norm[-1] - 1e-3) & check(fixed[0] / 2 - fixed[-1]),
        evidence=f"k = 1 from −w*: the norm falls to {float(one.norm[-1]):.0e} in 60 steps; k = 2 from θ = π−0.3: .9 →"
        f" {float(sinking.norm[1]):.2f} → {float(sinking.norm[2]):.2f}, though below ‖w*‖; u = 0, k = 16, 256, 4096:"
        f" M_k = {_listed(fixed)} for β = .1, but {_listed(smaller)} for β = 1/√k. Corrected, {len(norm)} runs: ‖w̄‖ ≥"
        f" lower bound + {low.min():.3f}, ‖w̄‖ ≤ 1 + {float(norm.max()) - 1:.0e}",
        correction="for k ≥ 2, and with β → 0 as k → ∞, both of which Theorem 1's (iii) implies: liminf ‖wᵗ‖ ≥"
        " ‖w*‖·B/(A+βk²), which tends to ‖w*‖/(1+πβ), and limsup ‖wᵗ‖ ≤ ‖w*‖",
        corrected=check(low) & check(1 - norm, tolerance=1e-9) & check(smaller[:-1] / 2 - smaller[1:]),
        mends=True,
        counterexample={
            "k": 1, "beta": 0.1, "lam": 0.01, "eta": 0.5, "truth": [1.0, 0.0], "start": [-1.0, 0.0],
            "norms": [float(r) for r in one.norm[[0, 1, 2, 10, 60], 0, 0]],
        },
    )  # fmt: skip


def norm_inside(sweep: Sweep) -> Verdict:
    """Measure ‖w‖ in the steps that start below ‖w*‖, and in those that start below the corrected floor."""
    path = _sinking()
    inside, below = column(sweep.proof, "fall_inside"), column(sweep.proof, "fall_below_floor")
    some, started = inside[inside > -torch.inf], below[below > -torch.inf]
    return Verdict(
        where="Proof of Lemma 5, first step",
        claim="if ‖wᵗ‖ < ‖w*‖ then ‖wᵗ⁺¹‖ > ‖wᵗ‖",
        printed=check(path.norm.diff(dim=0)[0]),
        evidence=f"k = 2 from θ = π−0.3: ‖w‖ = .9 → {float(path.norm[1]):.2f} → {float(path.norm[2]):.2f};"
        f" {int((some > 1e-9).sum())} of {len(some)} runs of the sweep have such a fall, by up to"
        f" {some.max():.2f}; below the floor ‖w*‖B/(A+βk²) every step raises ‖w‖, by at least"
        f" {-float(started.max()):.4f} ({len(started)} runs)",
        correction="if k ≥ 2 and ‖wᵗ‖ < ‖w*‖·B/(A+βk²) then ‖wᵗ⁺¹‖ > ‖wᵗ‖",
        corrected=check(-started),
        counterexample={
            "penalty": "l1", "k": 2, "beta": 0.014, "lam": 0.007, "eta": 1.0, "delta": 0.3, "truth": [1.0, 0.0],
            "start": path.w[0, 0, 0].tolist(), "norms": [float(r) for r in path.norm[:4, 0, 0]],
        },
    )  # fmt: skip


def norm_outside(sweep: Sweep) -> Verdict:
    """Measure ‖w‖ in the steps that start above ‖w*‖."""
    rise = column(sweep.proof, "rise_outside")
    started = rise[rise > -torch.inf]
    return Verdict(
        where="Proof of Lemma 5, second step",
        claim="if ‖wᵗ‖ > ‖w*‖ then ‖wᵗ⁺¹‖ < ‖wᵗ‖",
        printed=check(-started),
        evidence=f"{len(started)} runs with such a step: the largest change of ‖w‖ in one is {started.max():.1e}",
    )


def _widths(patches: Sequence[int], betas: Sequence[float]) -> Tensor:
    """Return ‖w*‖ − ‖w̄‖ for each k and β, from w⁰ = w*, with a threshold that empties u: the strongest pull."""
    settings = [Setting(L1(lam=2 * b), k=k, beta=b, eta=1.0) for k, b in zip(patches, betas, strict=True)]
    return 1 - simulate(settings, _AXIS, _AXIS, steps=300, every=300, empty_ok=True).norm[-1, :, 0]


def _listed(widths: Tensor) -> str:
    return ", ".join(f"{width:.3f}" for width in widths)


def _sinking() -> Trajectory:
    """Run k = 2 from inside the sphere at θ = π − 0.3, with parameters that meet Theorem 1's (iii) for δ = 0.3."""
    away = torch.tensor(pi - 0.3, dtype=torch.float64)
    start = 0.9 * torch.stack([away.cos(), away.sin()])
    return simulate(Setting(L1(lam=0.007), k=2, beta=0.014, eta=1.0), _AXIS, start, steps=40, empty_ok=True)
