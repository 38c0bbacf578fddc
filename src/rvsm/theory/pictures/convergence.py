"""Pictures of Theorem 1: descent, rate, and the error of the limit, with the bound beside the measurement."""

from math import pi, sqrt

import torch
from matplotlib.figure import Figure as Canvas
from torch import Tensor

from rvsm.pages import PALETTE, Figure
from rvsm.theory.network import curvature
from rvsm.theory.simulate import simulate
from rvsm.theory.sweep import PENALTIES, beta_bound, starts
from rvsm.theory.trajectory import Setting, Trajectory

LABELS = {"l1": "ℓ1", "tl1": "Tℓ1", "l0": "ℓ0"}
STYLES = {"l1": "-", "tl1": "--", "l0": ":"}
"""Line styles, for curves that lie on each other."""

_D, _K, _DELTA = 10, 4, 1.0


def descent() -> list[Figure]:
    """Draw Lagrangian and angle against time, and the smallest gradient so far against its bound."""
    path = _run([beta_bound(k=_K, delta=_DELTA)], seeds=1, steps=400, every=1)[0]

    def draw(canvas: Canvas) -> None:
        left, right = canvas.subplots(1, 2)
        for i, name in enumerate(LABELS):
            above = path.lagrangian[:, i, 0] - path.lagrangian[-1, i, 0].item() + 1e-17
            left.semilogy(path.steps, above, STYLES[name], label=LABELS[name])
            right.plot(path.steps, path.theta[:, i, 0], STYLES[name], label=LABELS[name])
        left.set(xlabel="step t", ylabel="ℒ(wᵗ, uᵗ) − its last value", ylim=(1e-16, 1), xlim=(0, 45))
        right.axhline(pi - _DELTA, color=PALETTE[4], linestyle="--", linewidth=1, label="π − δ, the start")
        right.axhline(_DELTA, color=PALETTE[3], linestyle=":", linewidth=1.5, label="δ, the bound on the limit")
        right.set(xlabel="step t", ylabel="angle θ between wᵗ and w*", xlim=(0, 45), ylim=(0, pi))
        left.legend()
        right.legend()

    return [
        Figure(
            "descent",
            f"Theorem 1 at work (d = {_D}, k = {_K}, δ = {_DELTA:g}, β at its bound, one run for each penalty). Left:"
            " the Lagrangian falls at every step, in a straight line on this scale, so convergence is linear. Right:"
            " the angle starts at π − δ, never rises above it, and ends far below the promised δ.",
            draw,
            size=(8.0, 3.8),
        ),
        _rate(path),
    ]


def _rate(path: Trajectory) -> Figure:
    smallest = path.stationarity[:-1].square().cummin(dim=0).values
    steps = torch.arange(1, len(path.steps))

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for i, name in enumerate(LABELS):
            measured = smallest[:, i, 0].clamp_min(1e-34)
            axes.loglog(steps, measured, STYLES[name], color=PALETTE[i], label=f"{LABELS[name]}, measured")
        # One bound is drawn for all three, which start almost equal and cannot be told apart.
        bound = 2 * (path.lagrangian[0, 0, 0] - path.lagrangian[1:, 0, 0]) / (path.settings[0].eta * steps)
        axes.loglog(steps, bound, color=PALETTE[4], linewidth=2.5, label="bound 2(ℒ⁰ − ℒᵀ)/(ηT)")
        axes.set(xlabel="steps T", ylabel="smallest ‖∇ℒ‖² among the first T", ylim=(1e-30, 10))
        axes.legend()

    return Figure(
        "rate",
        "Theorem 1 (ii) with its constant: the smallest squared gradient among the first T steps stays below"
        " 2(ℒ⁰ − ℒᵀ)/(ηT). The bound falls as 1/T; the measurement soon falls exponentially.",
        draw,
    )


def error_against_beta() -> Figure:
    """Draw the distance of the limit from the truth, in its radial and its angular part, against β."""
    betas = [beta_bound(k=_K, delta=_DELTA) * 2.0**-j for j in range(9)]
    seeds = 20
    path, truth = _run(betas, seeds=seeds, steps=1500, every=1500, tolerance=1e-13)
    parts = [(path.w[-1] - truth).norm(dim=-1), (path.norm[-1] - 1).abs(), path.theta[-1]]
    whole, radial, angular = (part.mean(dim=-1).view(len(LABELS), len(betas)) for part in parts)

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(1, 3, sharex=True, sharey=True)
        for i, (axes, name) in enumerate(zip(panels, LABELS, strict=True)):
            axes.loglog(betas, whole[i], "o-", color=PALETTE[0], markersize=4, label="‖w̄ − w*‖")
            axes.loglog(betas, radial[i], "s--", color=PALETTE[1], markersize=4, label="radial part |‖w̄‖ − 1|")
            axes.loglog(betas, angular[i], "^:", color=PALETTE[2], markersize=4, label="angular part θ̄")
            guide = [float(whole[i, 0]) * 2.5 * beta / betas[0] for beta in betas]
            axes.loglog(betas, guide, color=PALETTE[3], linewidth=1, label="∝ β")
            axes.set(title=LABELS[name], xlabel="β")
        panels[0].set_ylabel(f"mean over {seeds} runs")
        panels[0].legend(fontsize=8)

    return Figure(
        "error-against-beta",
        f"Theorem 1 (iii): the error is proportional to β for all three penalties (d = {_D}, k = {_K}, threshold"
        " 0.3/√d). The radial part, which the proof's O(kβ sin γ) leaves out, is as large as the angular one for ℓ1;"
        " for ℓ0, which does not shrink, it is small.",
        draw,
        size=(8.5, 3.6),
    )


def _run(
    betas: list[float], *, seeds: int, steps: int, every: int, tolerance: float = 0.0
) -> tuple[Trajectory, Tensor]:
    """Run each penalty with each β at the threshold 0.3/√d, from the angle π − δ; return also the truths."""
    generator = torch.Generator().manual_seed(1)
    truth = torch.randn(seeds, _D, generator=generator, dtype=torch.float64)
    truth[:, _D // 2 :] = 0
    truth = torch.nn.functional.normalize(truth, dim=-1)
    ones = torch.ones(seeds, dtype=torch.float64)
    start = starts(truth, (pi - _DELTA) * ones, ones, generator)
    settings = [
        Setting(
            PENALTIES[name](1.0).with_threshold(0.3 / sqrt(_D), 1 / beta),
            k=_K,
            beta=beta,
            eta=1 / (beta + float(curvature(_K))),
        )
        for name in LABELS
        for beta in betas
    ]
    return simulate(settings, truth, start, steps=steps, every=every, tolerance=tolerance), truth
