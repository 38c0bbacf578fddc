"""The second half of the proof of Theorem 1: consequences of the equation of the limit."""

from math import pi, sqrt

import torch
from torch import Tensor

from rvsm.paper.theory.bounds import threshold_limit
from rvsm.paper.theory.counterexamples import all_entries_below_threshold, equal_entries
from rvsm.paper.theory.network import angle, coefficients, gradient, size
from rvsm.paper.theory.statements.theorem import CONVERGED
from rvsm.paper.theory.sweep import Runs, Sweep, column
from rvsm.paper.theory.verdict import Verdict, check

THRESHOLD_CONDITION = "√d·t < ‖w*‖·A/(A+βk²)"
"""The condition that ensures that ū is not empty; `threshold_limit` computes its bound."""


def equilibrium(sweep: Sweep) -> Verdict:
    """Measure the angle between c₂w* + βū and w̄, and the part of ū outside the plane of w̄ and w*."""
    turned, outside = [], []
    for part in sweep.proof:
        c2 = (pi - part.theta) / (part.k * pi)
        turned.append(angle(c2.unsqueeze(-1) * part.truth + part.beta.unsqueeze(-1) * part.u, part.w))
        axes, _ = torch.linalg.qr(torch.stack([part.w, part.truth], dim=-1))
        inside = axes @ (axes.mT @ part.u.unsqueeze(-1))
        # If w̄ and w* are almost parallel, their plane is ill-conditioned, and u is almost parallel to both.
        known = part.theta > 1e-4
        outside.append((size(part.u - inside.squeeze(-1)) * part.beta)[known])
    gap, off = torch.cat(turned).max(), torch.cat(outside).max()
    return Verdict(
        where="Proof of Theorem 1, equilibrium and parallel conditions",
        claim="c₂w* + βū is parallel to w̄ at the limit, c₂ = (π−θ)/(kπ); so w̄, ū and w* are co-planar",
        printed=check(1 - gap / CONVERGED) & check(1 - off / CONVERGED),
        evidence=f"{sum(map(len, turned))} limits: angle between the two ≤ {gap:.1e}; β times the part of ū"
        f" across the plane of w̄ and w* ≤ {off:.1e}",
    )


def no_attraction(sweep: Sweep) -> Verdict:
    """Evaluate c₂ at the angle 0, and at all limits of the sweep."""
    path, _ = sweep.once(equal_entries, 4, k=2, beta=0.1)
    theta = float(path.theta[-1])
    at_zero = (pi - theta) / (2 * pi)
    runs = sweep.proof
    k, delta = column(runs, "k"), column(runs, "delta")
    slack = (pi - column(runs, "theta")) / (k * pi) - delta / (k * pi)
    return Verdict(
        where="Proof of Theorem 1: “c₂ = 0 when θ(w̄,w*) = π or 0”",
        claim="c₂ = (π−θ)/(kπ) vanishes at θ = 0; so c₂ > 0 only almost surely",
        printed=check(1e-9 - at_zero),
        evidence=f"c₂(0) = 1/k: w* = (1,1,1,1)/2, k = 2, has a limit at θ̄ = {theta:.0e} with c₂ = {at_zero:.3f}; c₂ −"
        f" δ/(kπ) ≥ {slack.min():.4f} in {len(slack)} limits",
        correction="c₂ vanishes at θ = π only, so θ̄ ≤ π−δ gives c₂ ≥ δ/(kπ) > 0 always, for every w*",
        corrected=check(slack),
        counterexample={
            "penalty": "l1", "d": 4, "k": 2, "beta": 0.1, "truth": [0.5] * 4, "theta": theta, "c2": at_zero,
        },
    )  # fmt: skip


def parallel_limit(sweep: Sweep) -> Verdict:
    """Measure w̄ − w* if the two are parallel: for a truth of equal entries, and in the sweep."""
    path, truth = sweep.once(equal_entries, 4, k=2, beta=0.1)
    w, theta = path.w[-1, 0, 0], float(path.theta[-1])
    error = float(size(w - truth))
    gaps = []
    for part in sweep.proof:
        a, _ = coefficients(part.k)
        shorter = part.k**2 / a * part.beta * part.gap
        gaps.append((part.error - shorter).abs()[part.theta < CONVERGED])
    gap = torch.cat(gaps)
    return Verdict(
        where="Proof of Theorem 1: “θ(w̄,w*) = 0. Thus, w̄ = w*”",
        claim="θ(w̄,w*) = 0 implies w̄ = w*",
        printed=check(CONVERGED - error),
        evidence=f"w* = (1,1,1,1)/2, k = 2: θ̄ = {theta:.0e} but ‖w̄−w*‖ = {error:.6f}; in {len(gap)} limits of"
        f" the sweep with θ̄ = 0 ‖w̄−w*‖ and β‖w̄−ū‖/L⁺ differ by ≤ {gap.max():.0e}",
        correction="it implies w̄ = (1 − β‖w̄−ū‖/L⁺)w*: parallel, but shorter, unless ū = w̄",
        corrected=check(1 - gap / CONVERGED),
        counterexample={
            "penalty": "l1", "d": 4, "k": 2, "beta": 0.1, "mu": 0.25, "truth": truth.tolist(), "w": w.tolist(),
            "theta": theta, "error": error,
        },
    )  # fmt: skip


def sine_relation(sweep: Sweep) -> Verdict:
    """Check the relation of the angles at every limit."""
    gaps = []
    for part in sweep.proof:
        some = part.u.count_nonzero(dim=-1) > 0
        gamma = angle(part.w[some], part.u[some])
        theta, k, beta = part.theta[some], part.k[some], part.beta[some]
        gaps.append((pi - theta) / (k * pi) * theta.sin() - beta * part.u[some].norm(dim=-1) * gamma.sin())
    gap = torch.cat(gaps).abs()
    return Verdict(
        where="Proof of Theorem 1",
        claim="(π−θ)/(kπ)·sin θ = β‖ū‖sin γ at the limit, γ = θ(w̄,ū)",
        printed=check(1 - gap / CONVERGED),
        evidence=f"{len(gap)} limits with ū ≠ 0: the two sides differ by ≤ {gap.max():.1e}",
    )


def sine_gives_angle(sweep: Sweep) -> Verdict:
    """Search a grid of δ and θ for an angle that meets the inequality but not its conclusion."""
    count = 400 if sweep.quick else 2000
    delta = torch.linspace(0, pi, count + 2, dtype=torch.float64)[1:-1].unsqueeze(-1)
    theta = torch.linspace(0, 1, 2 * count, dtype=torch.float64) * (pi - delta)
    meets = (pi - theta) * theta.sin() < delta * delta.sin() * (1 - 1e-12)
    slack = (delta - theta)[meets]
    # The inequality is only needed to exclude angles θ ≥ δ.
    excluded = int(((theta >= delta) & ~meets).sum())
    return Verdict(
        where="Proof of Theorem 1: “This implies θ < δ”",
        claim="((π−θ)/(kπ))sin θ < (δ/(kπ))sin δ implies θ < δ, for θ ≤ π−δ",
        printed=check(slack) & check(float(excluded) - 1),
        evidence=f"{slack.numel()} pairs (δ, θ) of a grid meet the inequality: δ − θ ≥ {slack.min():.1e}; the"
        f" {excluded} with θ ≥ δ do not meet it",
    )


def limit_gradient(sweep: Sweep) -> Verdict:
    """Measure ∇f at the limits."""
    slope = torch.cat([size(gradient(part.w, part.truth, k=part.k)) for part in sweep.proof])
    k, delta, width = (column(sweep.proof, name) for name in ("k", "delta", "gap"))
    of_bound = slope * k * pi / (delta * delta.sin())
    return Verdict(
        where="Proof of Theorem 1, before the last display",
        claim="‖β(w̄−ū)‖ < β, so ‖∇f(w̄)‖ ≤ δ sin δ/(kπ)",
        printed=check(1 - of_bound) & check(1 - width),
        evidence=f"{len(width)} limits of all penalties: ‖w̄−ū‖ ≤ {width.max():.4f}, ‖∇f(w̄)‖ ≤"
        f" {of_bound.max():.4f}·δ sin δ/(kπ)",
    )


def error_by_gamma(sweep: Sweep) -> Verdict:
    """Run truths of equal and almost equal entries, where γ → 0; then check a bound with the radial error."""
    d, k, beta = 4, 2, 0.1
    gammas, errors = [], []
    for spread in (0.0, 1e-3, 1e-2, 1e-1):
        path, truth = sweep.once(equal_entries, d, k=k, beta=beta, spread=spread)
        gammas.append(angle(path.w[-1, 0, 0], path.u[-1, 0, 0]))
        errors.append(size(path.w[-1, 0, 0] - truth))
    gamma, error = torch.stack(gammas), torch.stack(errors)
    promised = k * beta * gamma.sin()
    constant = error / promised
    a, _ = coefficients(k)
    predicted = float(k**2 * (0.5 / sqrt(d) * beta) * sqrt(d) / a)
    errors_swept, bounds = column(sweep.proof, "error"), column(sweep.proof, "error_bound")
    ratio = torch.where(errors_swept < CONVERGED, 0.0, errors_swept / bounds)  # where both vanish, 0
    return Verdict(
        where="Proof of Theorem 1, last display",
        claim="‖w̄−w*‖ = O(kβ sin γ)",
        # Each w* whose entries are not all equal has a constant, but no constant holds for all of them.
        printed=check(100 * promised - error),
        evidence=f"w* = (1,1,1,1)/2: γ = {gamma[0]:.0e} but the error is {error[0]:.6f} (k²λ√d/A = {predicted:.6f}),"
        f" all radial; with entries 1 ± ε before scaling, ε = .001, .01, .1, γ = {gamma[1]:.4f}, {gamma[2]:.4f},"
        f" {gamma[3]:.4f} and the error is {constant[1]:.0f}, {constant[2]:.0f}, {constant[3]:.1f} times kβ sin γ: no"
        f" constant does for all w*; in {len(ratio)} limits ‖w̄−w*‖ ≤ {ratio.max():.4f}·(π/(π−θ̄))kβ‖w̄−ū‖",
        correction="‖w̄−w*‖ ≤ (π/(π−θ̄))·kβ‖w̄−ū‖ for every w*, radial and angular error together",
        corrected=check(1 - ratio, tolerance=1e-6),
        counterexample={
            "penalty": "l1", "d": d, "k": k, "beta": beta, "mu": 0.5 / sqrt(d), "entries of w*": "1 ± ε, scaled",
            "ε": [0.0, 1e-3, 1e-2, 1e-1], "gamma": gamma.tolist(), "error": error.tolist(),
        },
    )  # fmt: skip


def not_all_small(sweep: Sweep) -> Verdict:
    """Run the case in which u becomes empty; then check the threshold below which it cannot."""
    path = all_entries_below_threshold()
    w, u = path.w[-1, 0, 0], path.u[-1, 0, 0]
    mu = path.settings[0].mu
    slack = above_threshold(sweep.proof)
    return Verdict(
        where="Proof of Theorem 1: “The latter case is not possible when λ/β < 1/√d”",
        claim="all |w̄_i| < λ/β is impossible if λ/β < 1/√d",
        printed=check(w.abs().max() - mu),
        evidence=f"μ = {mu:.4f} < 1/√2, yet w̄ = ({w[0]:.4f}, {w[1]:.4f}) and ū has {int(u.count_nonzero())} non-zeros;"
        f" with the corrected condition max|w̄_i| exceeds the threshold by ≥ {slack.min():.1e} in all"
        f" {len(slack)} limits that meet it",
        correction=f"it is impossible if {THRESHOLD_CONDITION}, t the penalty's threshold (ℓ1: λ/β)",
        corrected=check(slack),
        counterexample={
            "penalty": "l1", "d": 2, "k": 2, "beta": path.settings[0].beta, "mu": mu, "delta": 1.0,
            "truth": [sqrt(0.5)] * 2, "start": [1.0, 0.2], "w": w.tolist(), "u": u.tolist(),
        },
    )  # fmt: skip


def above_threshold(runs: tuple[Runs, ...], *names: str) -> Tensor:
    """Return max|w̄_i| − t at the limits that meet the threshold condition, for some penalties or for all."""
    slack = []
    for part in runs:
        met = part.threshold < threshold_limit(k=part.k, beta=part.beta, d=part.d)
        chosen = met & part.only(*names) if names else met
        slack.append((part.w.abs().amax(dim=-1) - part.threshold)[chosen])
    return torch.cat(slack)
