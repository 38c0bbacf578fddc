"""The first half of the proof of Theorem 1: the angle stays in the cone of the start, if β is small."""

from itertools import product
from math import pi, sqrt

import torch
from torch import Tensor

from rvsm.paper.theory.counterexamples import first_turn
from rvsm.paper.theory.network import angle, coefficients, size
from rvsm.paper.theory.problems import PENALTIES
from rvsm.paper.theory.sweep import Runs, Sweep, column
from rvsm.paper.theory.verdict import Verdict, check
from rvsm.penalties import L1


def cone(sweep: Sweep) -> Verdict:
    """Search the sweep for an angle beyond π − δ, and for a coefficient of w⁰ that is not positive."""
    runs, far = sweep.proof, sweep.long_starts
    over, long = beyond_cone(runs), beyond_cone(far, "l1")
    coefficient = []
    for part in (*runs, *far):
        a, b = coefficients(part.k)
        along = (a - (part.k / pi * part.theta_start.sin() + b) / size(part.start)) / part.k**2
        coefficient.append(1 - part.eta * (part.beta + along))
    least = torch.cat(coefficient).min()
    return Verdict(
        where="Proof of Theorem 1, first sentence",
        claim="if θ⁰ ≤ π−δ then θᵗ ≤ π−δ for all t; w¹ = Cw⁰ + η((π−θ⁰)/(kπ))w* + ηβu¹ with C > 0",
        printed=check(-over, tolerance=1e-9) & check(-long, tolerance=1e-9) & check(least),
        evidence=f"{len(over)} runs of all penalties with ‖w⁰‖ ≤ 2‖w*‖, and {len(long)} of ℓ1 up to 10‖w*‖ (for ℓ0 and"
        f" Tℓ1 see corollary-1.2): θᵗ − (π−δ) ≤ {torch.cat([over, long]).max():.0e}; C ≥ {least:.3f}",
    )


def beyond_cone(runs: tuple[Runs, ...], *names: str) -> Tensor:
    """Return by how much θ exceeds π − δ during the runs of some penalties, or of all."""
    return column(runs, "angle_max", *names) - (pi - column(runs, "delta", *names))


def norm_of_u(sweep: Sweep) -> Verdict:
    """Start with ℓ1 and ‖w⁰‖ > ‖w*‖; then check what the proof actually needs of u, on all starts of the sweep."""
    start, mu = torch.tensor([2.4, 1.8], dtype=torch.float64), 0.5 / sqrt(2)
    long = float(L1(lam=mu).prox(start, 1.0).norm())
    need, least, longest = [], [], 0.0
    for part in (*sweep.proof, *sweep.long_starts):
        blocks = zip(part.settings, part.start.chunk(len(part.settings)), strict=True)
        copies = torch.cat([s.penalty.prox(w, 1 / s.beta) for s, w in blocks])
        w, u, t = (rows[copies.count_nonzero(dim=-1) > 0] for rows in (part.start, copies, part.threshold))
        across = size(u) * angle(w, u).sin()
        need.append(1 - across)
        least.append(torch.minimum(size(w) / 2, sqrt(part.d) * t) - across)
        if part.only("l1").all():
            longest = max(longest, float(size(u).max()))
    slack, bound = torch.cat(need), torch.cat(least)
    return Verdict(
        where="Proof of Theorem 1: “since ‖u¹‖ ≤ 1”",
        claim="‖u¹‖ ≤ 1 = ‖w*‖",
        printed=check(1 - long) & check(1 - longest),
        evidence=f"nothing in the hypotheses bounds ‖w⁰‖: with ℓ1 w⁰ = 3w* = (2.4, 1.8) has ‖u¹‖ = {long:.2f}, and"
        f" one of the sweep, ‖w⁰‖ ≤ 10, has {longest:.2f}; but the proof needs only ‖u¹‖sin θ(u¹,w⁰) ≤ 1, and that"
        f" holds for all {len(slack)} starts of the sweep (slack ≥ {slack.min():.3f})",
        correction="‖u¹‖sin θ(u¹,w⁰) ≤ min(‖w⁰‖/2, √d·t), so ‖w⁰‖ ≤ 2‖w*‖ or √d·t ≤ ‖w*‖ is enough for the proof's"
        " inequality; the latter is (iii) for ℓ1, which may start anywhere in the cone",
        corrected=check(slack) & check(bound, tolerance=1e-12),
        counterexample={"penalty": "l1", "mu": mu, "truth": [0.8, 0.6], "start": [2.4, 1.8], "norm of u": long},
    )


def beta_bound_sharp(sweep: Sweep) -> Verdict:
    """Find by bisection the multiple of the bound at which the angle begins to rise in the worst case."""
    dimensions, margins = (2, 10, 60), (0.3, 1.0, 1.5)
    cases = list(zip(dimensions, margins, strict=True) if sweep.quick else product(dimensions, margins))
    critical, norms = [], []
    for norm in (0.5, 1.0, 1.4, 2.0):
        for d, delta in cases:
            low, high = 0.1, 8.0
            for _ in range(12 if sweep.quick else 20):
                middle = (low + high) / 2
                rises = first_turn(middle, delta=delta, d=d, norm=norm) > 0
                low, high = (low, middle) if rises else (middle, high)
            critical.append((low + high) / 2)
            norms.append(norm)
    multiple, length = torch.tensor(critical, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)
    factor = multiple * length
    assumed = length / sqrt(2) <= 1  # half of the entries survive: ‖u¹‖ = ‖w⁰‖/√2
    below, above = first_turn(1.9), first_turn(2.1)
    return Verdict(
        where="Proof of Theorem 1, worst case",
        claim="β ≤ δ sin δ/(kπ) is sufficient for θ¹ ≤ θ⁰ = π−δ, where ‖u¹‖ ≤ ‖w*‖ as the proof assumes (for longer"
        " starts see corollary-1.2)",
        printed=check(multiple[assumed] - 1) & check(1 - (factor - 2).abs() / 0.01),
        evidence=f"ℓ0, half of the entries just above the threshold, {len(factor)} (‖w⁰‖, d, δ), ‖w⁰‖ from .5 to 2: θ"
        f" begins to rise at {factor.min():.3f}–{factor.max():.3f} times ‖w*‖/‖w⁰‖ times the bound;"
        f" θ¹−θ⁰ = {below:.1e} at 1.9×, {above:.1e} at 2.1× for ‖w⁰‖ = 1: there the bound could be doubled, and no"
        " more; at ‖w⁰‖ = 2‖w*‖ it is exact",
    )


def thresholding_angle(sweep: Sweep) -> Verdict:
    """Check θ(u,w) ≤ π/2 and ‖u‖ sin θ(u,w) ≤ ‖w‖/2 on random vectors and on the worst ones."""
    generator = torch.Generator().manual_seed(8)
    slack, turned = [], []
    for d in (2, 10, 60):
        w = torch.randn(400 if sweep.quick else 4000, d, generator=generator, dtype=torch.float64)
        half = torch.where(torch.arange(d) < d // 2, 1.0 + 1e-9, 1.0 - 1e-9).double().expand(8, -1)
        for make in PENALTIES.values():
            for t in (0.2, 1.0):
                penalty = make(1.0).with_threshold(t, 1.0)
                pairs = [_turned(rows, penalty.prox(rows, 1.0)) for rows in (w, half * t)]
                slack += [0.5 - size(u) * angle(v, u).sin() / size(v) for v, u in pairs]
                turned += [angle(v, u) for v, u in pairs]
    everything, widest = torch.cat(slack), torch.cat(turned).max()
    return Verdict(
        where="Proof of Theorem 1, worst case (sharpened)",
        claim="θ(u,w) ≤ π/2; sharper, ‖u‖sin θ(u,w) ≤ ‖w‖/2, for every thresholding with 0 ≤ u_i/w_i ≤ 1",
        printed=check(everything, tolerance=1e-12) & check(pi / 2 - widest),
        evidence=f"{len(everything)} vectors with u ≠ 0: (‖w‖/2 − ‖u‖sin θ)/‖w‖ ≥ {everything.min():.1e},"
        f" reached by ℓ0 with half of the entries just above the threshold; θ(u,w) ≤ {widest:.3f}",
    )


def _turned(w: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows where u is not empty, which have an angle."""
    some = u.count_nonzero(dim=-1) > 0
    return w[some], u[some]
