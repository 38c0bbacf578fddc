"""Theorem 1, part by part, and the steps of its proof that are claims of their own."""

from math import pi, sqrt

import torch
from torch import Tensor

from rvsm.theory.counterexamples import all_entries_below_threshold, equal_entries, rising_angle
from rvsm.theory.error_order import error_exponents
from rvsm.theory.network import angle, coefficients, curvature
from rvsm.theory.rowwise import penalty_values
from rvsm.theory.simulate import simulate
from rvsm.theory.statements.descent import ROUNDING
from rvsm.theory.sweep import PENALTIES, Runs, Sweep, column, starts, truths
from rvsm.theory.trajectory import Setting
from rvsm.theory.verdict import Verdict, check, judge

CONVERGED = 1e-9
"""What counts as zero at a limit that the sweep has come within about 1e-12 of."""


def lagrangian(sweep: Sweep) -> Verdict:
    """Look for a rise in the proof's order, and for ℓ1 in the printed one."""
    proof, printed = column(sweep.proof, "lagrangian_rise"), column(sweep.printed_l1, "lagrangian_rise")
    return judge(
        "theorem-lagrangian",
        where="Theorem 1",
        claim="ℒ(wᵗ,uᵗ) decreases monotonically",
        printed=check(ROUNDING - proof) & check(ROUNDING - printed),
        evidence=f"largest rise {float(proof.max()):.1e} in {len(proof)} runs in the proof's order (all penalties) and"
        f" {float(printed.max()):.1e} in {len(printed)} in the printed order (ℓ1)",
    )


def monotone_angle(sweep: Sweep) -> Verdict:
    """Run counterexample 2; then check what is true of the angle on the sweep."""
    path = rising_angle()
    theta = path.theta[:, 0, 0]
    runs = sweep.proof
    far, rise = column(runs, "angle_rise_far"), column(runs, "angle_rise")
    over = column(runs, "angle_max") - (pi - column(runs, "delta"))
    started = far[far > -torch.inf]
    return judge(
        "monotone-angle",
        where="Theorem 1, overview of the proof: θᵗ⁺¹ ≤ θᵗ",
        claim="the angle θ(wᵗ,w*) decreases monotonically",
        printed=check(ROUNDING - theta.diff().max()),
        evidence=f"from w⁰ = w*: θ = 0 → {theta[1]:.5f} → … → {theta[-1]:.5f}; in {int((rise > 1e-9).sum())} of"
        f" {len(rise)} runs θ rises at some step, by up to {float(rise.max()):.3f}; but never beyond π−δ"
        f" ({float(over.max()):.0e}), and while θ ≥ δ every step lowers it by at least {-float(started.max()):.4f}",
        correction="θᵗ ≤ π−δ for all t, and θ decreases while θ ≥ δ",
        corrected=check(-over, tolerance=1e-9) & check(-started),
        counterexample={
            "penalty": "l1", "k": 2, "beta": 0.1, "mu": 0.5 / sqrt(2), "eta": path.settings[0].eta, "truth": [0.8, 0.6],
            "start": [0.8, 0.6], "theta": [float(x) for x in theta[[0, 1, 2, 5, -1]]],
        },
    )  # fmt: skip


def stationarity(sweep: Sweep) -> Verdict:
    """Measure ∇_wℒ at the limits, and compare u there with a grid of candidates."""
    runs = sweep.proof
    left = column(runs, "stationarity")
    excess = max(_best_improvement(part) for part in runs)
    return judge(
        "theorem-i",
        where="Theorem 1 (i)",
        claim="0 ∈ ∂_uℒ(w̄,ū) and ∇_wℒ(w̄,ū) = 0 at the limit, ū the thresholding of w̄",
        printed=check(1 - left / CONVERGED) & check(1 - excess / 1e-12),
        evidence=f"{len(left)} limits: ‖∇_wℒ‖ ≤ {float(left.max()):.1e}; no other value of an entry of u on a grid"
        f" lowers ℒ by more than {max(excess, 0.0):.1e}",
    )


def rate(sweep: Sweep) -> Verdict:
    """Compare the smallest gradient so far with the bound that descent gives, at every step of every run."""
    runs = sweep.proof
    ratio, contraction = column(runs, "rate"), column(runs, "contraction")
    k, eta = column(runs, "k"), column(runs, "eta")
    share = ((1 - contraction) / (eta / k)).median()
    return judge(
        "theorem-ii",
        where="Theorem 1 (ii)",
        claim="∇_wℒ(wᵗ,uᵗ) = O(ε) in O(1/ε²) iterations; with its constant: min_{t<T}‖∇_wℒ‖² ≤ 2(ℒ⁰−ℒᵀ)/(ηT)",
        printed=check(1 - ratio),
        evidence=f"{len(ratio)} runs, all T: at most {float(ratio.max()):.4f} of the bound; in practice linear, by a"
        f" factor of {float(contraction.median()):.2f} per step (median), 1−{float(share):.1f}η/k",
    )


def limit_angle(sweep: Sweep) -> Verdict:
    """Compare θ̄ with δ at the bound on β, and with runs at twice the bound."""
    runs = sweep.proof
    theta, delta = column(runs, "theta"), column(runs, "delta")
    beyond = _angles_beyond(2.0, 12 if sweep.quick else 48)
    return judge(
        "theorem-iii-angle",
        where="Theorem 1 (iii)",
        claim="θ(w̄,w*) < δ",
        printed=check(delta - theta),
        evidence=f"{len(theta)} limits: θ̄ ≤ {float((theta / delta).max()):.3f}·δ;"
        f" at twice the bound on β still ≤ {float(beyond.max()):.3f}·δ ({len(beyond)} runs)",
    )


def limit_error(sweep: Sweep) -> Verdict:
    """Fit the exponent of ‖w̄ − w*‖ in β, at a fixed λ/β."""
    exponents = {name: error_exponents(name, quick=sweep.quick) for name in PENALTIES}
    shown = ", ".join(f"{name} {float(e.min()):.3f}–{float(e.max()):.3f}" for name, e in exponents.items())
    return judge(
        "theorem-iii-error",
        where="Theorem 1 (iii)",
        claim="‖w̄−w*‖ = O(β)",
        printed=check(torch.cat(list(exponents.values())) - 0.95),
        evidence=f"fitted exponents of β from 1e-4 to 3e-2 at a fixed λ/β: {shown}",
    )


def sine_relation(sweep: Sweep) -> Verdict:
    """Check the relation of the angles at every limit."""
    gaps = []
    for part in sweep.proof:
        some = part.u.count_nonzero(dim=-1) > 0
        gamma = angle(part.w[some], part.u[some])
        theta, k, beta = part.theta[some], part.k[some], part.beta[some]
        gaps.append((pi - theta) / (k * pi) * theta.sin() - beta * part.u[some].norm(dim=-1) * gamma.sin())
    gap = torch.cat(gaps).abs()
    return judge(
        "sine-relation",
        where="Proof of Theorem 1",
        claim="(π−θ)/(kπ)·sin θ = β‖ū‖sin γ at the limit, γ = θ(w̄,ū)",
        printed=check(1 - gap / CONVERGED),
        evidence=f"{len(gap)} limits with ū ≠ 0: the two sides differ by ≤ {float(gap.max()):.1e}",
    )


def error_by_gamma(sweep: Sweep) -> Verdict:
    """Run a truth of equal entries, where γ = 0; then check a bound that sees the radial error too."""
    d, k, beta = 4, 2, 0.1
    path = equal_entries(d, k=k, beta=beta)
    w, u = path.w[-1, 0, 0], path.u[-1, 0, 0]
    error = float((w - torch.full_like(w, 1 / sqrt(d))).norm())
    gamma = float(angle(w, u))
    a, _ = coefficients(k)
    predicted = float(k**2 * (0.5 / sqrt(d) * beta) * sqrt(d) / a)
    runs = sweep.proof
    ratio = torch.cat([_error_over_gap(part) for part in runs])
    return judge(
        "error-sin-gamma",
        where="Proof of Theorem 1, last display",
        claim="‖w̄−w*‖ = O(kβ sin γ)",
        printed=check(100 * k * beta * gamma - error),
        evidence=f"w* = (1,1,1,1)/2: γ = {gamma:.0e} but the error is {error:.6f} (k²λ√d/A = {predicted:.6f}), all"
        f" radial; in {len(ratio)} limits ‖w̄−w*‖ ≤ {float(ratio.max()):.4f}·(π/(π−θ̄))kβ‖w̄−ū‖",
        correction="‖w̄−w*‖ ≤ (π/(π−θ̄))·kβ‖w̄−ū‖, radial and angular error together",
        corrected=check(1 - ratio, tolerance=1e-6),
        counterexample={
            "penalty": "l1", "d": d, "k": k, "beta": beta, "mu": 0.5 / sqrt(d), "truth": [0.5] * 4,
            "gamma": gamma, "error": error,
        },
    )  # fmt: skip


def not_all_small(sweep: Sweep) -> Verdict:
    """Run the case where u empties; then check the threshold below which it cannot."""
    path = all_entries_below_threshold()
    w, u = path.w[-1, 0, 0], path.u[-1, 0, 0]
    mu = path.settings[0].mu
    below, cases = [], 0
    for part in sweep.proof:
        a, _ = coefficients(part.k)
        met = part.threshold * sqrt(part.d) < a / (a + part.beta * part.k**2)
        below.append((part.w.abs().amax(dim=-1) - part.threshold)[met])
        cases += int(met.sum())
    return judge(
        "not-all-small",
        where="Proof of Theorem 1: “The latter case is not possible when λ/β < 1/√d”",
        claim="all |w̄_i| < λ/β is impossible if λ/β < 1/√d",
        printed=check(w.abs().max() - mu),
        evidence=f"μ = {mu:.4f} < 1/√2, yet w̄ = ({w[0]:.4f}, {w[1]:.4f}) and ū has {int(u.count_nonzero())} non-zeros;"
        f" with the corrected condition max|w̄_i| exceeds the threshold by ≥ {float(torch.cat(below).min()):.1e} in all"
        f" {cases} limits that meet it",
        correction="it is impossible if the penalty's threshold t satisfies √d·t < ‖w*‖·A/(A+βk²)",
        corrected=check(torch.cat(below)),
        counterexample={
            "penalty": "l1", "d": 2, "k": 2, "beta": path.settings[0].beta, "mu": mu, "delta": 1.0,
            "truth": [sqrt(0.5)] * 2, "start": [1.0, 0.2], "w": w.tolist(), "u": u.tolist(),
        },
    )  # fmt: skip


def _best_improvement(part: Runs) -> float:
    """Return by how much the best u_i of a grid with 0 lowers ℒ, at all entries of some runs of each setting."""
    positive = torch.linspace(0, 1.5, 61, dtype=torch.float64)
    grid = torch.cat([-positive, positive]).unsqueeze(-1)
    best = float("-inf")
    seeds = len(part.k) // len(part.settings)
    for i, setting in enumerate(part.settings):
        rows = slice(i * seeds, min((i + 1) * seeds, i * seeds + 24))
        w, u = part.w[rows].flatten(), part.u[rows].flatten()
        mine = penalty_values([setting.penalty], u.unsqueeze(-1)) + setting.beta / 2 * (w - u) ** 2
        tried = penalty_values([setting.penalty], grid) + setting.beta / 2 * (w.unsqueeze(-1) - grid.T) ** 2
        best = max(best, float((mine - tried.min(dim=-1).values).max()))
    return best


def _error_over_gap(part: Runs) -> Tensor:
    """Return ‖w̄ − w*‖ over (π/(π−θ̄))·kβ‖w̄ − ū‖; where both vanish, 0."""
    error = (part.w - part.truth).norm(dim=-1)
    bound = pi / (pi - part.theta) * part.k * part.beta * (part.w - part.u).norm(dim=-1)
    return torch.where(error < CONVERGED, 0.0, error / bound)


def _angles_beyond(multiple: float, seeds: int) -> Tensor:
    """Return θ̄/δ of runs with β a multiple of its bound."""
    generator = torch.Generator().manual_seed(9)
    ratios = []
    for delta in (0.3, 1.0):
        truth = truths(seeds, 10, generator)
        theta = torch.linspace(0.05, 1, seeds, dtype=torch.float64) * (pi - delta)
        start = starts(truth, theta, torch.ones(seeds, dtype=torch.float64), generator)
        settings = []
        for make in PENALTIES.values():
            for k in (2, 12):
                beta = multiple * delta * float(torch.tensor(delta).sin()) / (k * pi)
                eta = 1 / (beta + float(curvature(k)))
                settings.append(Setting(make(0.9 / sqrt(10) * beta), k=k, beta=beta, eta=eta))
        path = simulate(settings, truth, start, steps=1000, every=1000, tolerance=1e-10)
        ratios.append(path.theta[-1].flatten() / delta)
    return torch.cat(ratios)
