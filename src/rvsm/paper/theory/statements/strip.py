"""Lemma 5: the strip of norms, and the two steps of its proof."""

from collections.abc import Sequence
from math import pi

import torch
from torch import Tensor

from rvsm.paper.theory.bounds import norm_floor
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.sweep import Sweep, column
from rvsm.paper.theory.trajectory import Setting, Trajectory
from rvsm.paper.theory.verdict import Verdict, check
from rvsm.penalties import L1


def closed_strip(sweep: Sweep) -> Verdict:
    """Run one patch from −w*, and many patches with β fixed and β → 0; then check the limits of the sweep."""
    axis = torch.tensor([1.0, 0.0], dtype=torch.float64)
    one = simulate(Setting(L1(lam=0.01), k=1, beta=0.1, eta=0.5), axis, -axis, steps=60, empty_ok=True)
    sinking = _sinking()
    patches = (16, 256, 4096)
    fixed, smaller = (_widths(patches, betas) for betas in ([0.1] * 3, [k**-0.5 for k in patches]))
    runs = sweep.proof
    norm, k, beta = column(runs, "norm"), column(runs, "k"), column(runs, "beta")
    low = norm - norm_floor(k=k, beta=beta)
    return Verdict(
        where="Lemma 5",
        claim="for k ≥ 1, ‖wᵗ‖ ∈ [‖w*‖−M_k, ‖w*‖+M_k] for all t ≥ T, with M_k < ‖w*‖ and M_k → 0 as k → ∞",
        # An M_k below ‖w*‖ leaves a norm, and M_k → 0 a smaller strip for more patches.
        printed=check(one.norm[-1] - 1e-3) & check(fixed[0] / 2 - fixed[-1]),
        evidence=f"k = 1 from −w*: the norm falls to {float(one.norm[-1]):.0e} in 60 steps; k = 2 from θ = π−0.3: .9 →"
        f" {float(sinking.norm[1]):.2f} → {float(sinking.norm[2]):.2f}, though below ‖w*‖; u = 0, k = 16, 256, 4096:"
        f" M_k = {_told(fixed)} for β = .1, but {_told(smaller)} for β = 1/√k. Corrected, {len(norm)} runs: ‖w̄‖ ≥"
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
    """Watch ‖w‖ in the steps that start below ‖w*‖, and in those that start below the corrected floor."""
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
    """Watch ‖w‖ in the steps that start above ‖w*‖."""
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
    axis = torch.tensor([1.0, 0.0], dtype=torch.float64)
    settings = [Setting(L1(lam=2 * b), k=k, beta=b, eta=1.0) for k, b in zip(patches, betas, strict=True)]
    return 1 - simulate(settings, axis, axis, steps=300, every=300, empty_ok=True).norm[-1, :, 0]


def _told(widths: Tensor) -> str:
    return ", ".join(f"{float(width):.3f}" for width in widths)


def _sinking() -> Trajectory:
    """Run k = 2 from inside the sphere at θ = π − 0.3, with parameters that meet Theorem 1's (iii) for δ = 0.3."""
    away = torch.tensor(pi - 0.3, dtype=torch.float64)
    axis = torch.tensor([1.0, 0.0], dtype=torch.float64)
    start = 0.9 * torch.stack([away.cos(), away.sin()])
    return simulate(Setting(L1(lam=0.007), k=2, beta=0.014, eta=1.0), axis, start, steps=40, empty_ok=True)
