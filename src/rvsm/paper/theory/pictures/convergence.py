"""Pictures of the three penalties: descent, rate and error of Theorem 1, each with its bound, and the cost of zeros."""

from itertools import product
from math import pi, sqrt

import torch
from matplotlib.figure import Figure as Canvas
from torch import Tensor

from rvsm.pages import PALETTE, Figure
from rvsm.paper.theory.bounds import beta_bound
from rvsm.paper.theory.comparison import OUTPUTS, sparsity_study
from rvsm.paper.theory.network import curvature, size, unit
from rvsm.paper.theory.problems import PENALTIES, starts
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.trajectory import Setting, Trajectory

LABELS = {"l1": "ℓ1", "tl1": "Tℓ1", "l0": "ℓ0"}
STYLES = {"l1": "-", "tl1": "--", "l0": ":"}
"""Line styles, for curves that overlap."""

_D, _K, _DELTA = 10, 4, 1.0
_OUTPUT_LABELS = {"u": "RVSM, u", "masked": "RVSM, w on the support of u", "admm": "ADMM, u"}
_OUTPUT_STYLES = {"u": "o-", "masked": "s-", "admm": "^--"}


def descent(quick: bool = False) -> Figure:
    """Draw Lagrangian and angle against time."""
    path, _ = _run([beta_bound(k=_K, delta=_DELTA)], seeds=1, steps=100 if quick else 400, every=1)
    above = path.lagrangian[..., 0] - path.lagrangian[-1, :, 0]
    # Smaller values are rounding errors and would be drawn as noise.
    shown = torch.where(above > 1e-14, above, torch.nan)
    last = int((above > 1e-14).any(dim=1).nonzero().max()) + 1

    def draw(canvas: Canvas) -> None:
        left, right = canvas.subplots(1, 2)
        for i, name in enumerate(LABELS):
            left.semilogy(path.steps, shown[:, i], STYLES[name], label=LABELS[name])
            right.plot(path.steps, path.theta[:, i, 0], STYLES[name], label=LABELS[name])
        left.set(xlabel="step t", ylabel="ℒ(wᵗ, uᵗ) − its limit, down to 1e-14", ylim=(1e-14, 1), xlim=(0, last))
        right.axhline(pi - _DELTA, color=PALETTE[4], linestyle="-.", linewidth=1.2, label="π − δ, the start")
        right.axhline(_DELTA, color=PALETTE[3], linestyle=(0, (1, 2)), linewidth=2, label="δ, the bound on the limit")
        right.set(xlabel="step t", ylabel="angle θ between wᵗ and w*", xlim=(0, last), ylim=(0, 2.4))
        left.legend()
        right.legend(loc="center right", bbox_to_anchor=(1, 0.68))

    return Figure(
        "descent",
        f"Theorem 1 at work (d = {_D}, k = {_K}, δ = {_DELTA:g}, β at its bound, one run for each penalty; the three"
        " lie almost on each other). Left: the Lagrangian falls at every step, in the end in a straight line on this"
        " scale, so convergence is linear. Right: the angle starts at π − δ, never rises above it, and ends far below"
        " the promised δ.",
        draw,
        size=(8.0, 3.8),
    )


def rate(quick: bool = False) -> Figure:
    """Draw the smallest gradient so far against its bound, each penalty with its own."""
    path, _ = _run([beta_bound(k=_K, delta=_DELTA)], seeds=1, steps=100 if quick else 400, every=1)
    smallest = path.stationarity[:-1].square().cummin(dim=0).values[..., 0]
    steps = torch.arange(1, len(path.steps))
    fallen = path.lagrangian[0, :, 0] - path.lagrangian[1:, :, 0]
    bound = 2 * fallen / (path.settings[0].eta * steps.unsqueeze(-1))

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(1, 3, sharex=True, sharey=True)
        for i, (axes, name) in enumerate(zip(panels, LABELS, strict=True)):
            axes.loglog(steps, bound[:, i], color=PALETTE[4], linewidth=2.5, label="bound 2(ℒ⁰ − ℒᵀ)/(ηT)")
            axes.loglog(steps, smallest[:, i].clamp_min(1e-34), color=PALETTE[0], label="measured")
            axes.set(title=LABELS[name], xlabel="steps T", ylim=(1e-25, 10))
            axes.minorticks_off()
        panels[0].set_ylabel("smallest ‖∇ℒ‖² among the first T")
        canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8)

    return Figure(
        "rate",
        "Theorem 1 (ii) with its constant, for the runs of the picture before: the smallest squared gradient among the"
        " first T steps stays below 2(ℒ⁰ − ℒᵀ)/(ηT), which is drawn for each penalty from its own Lagrangian. At T = 1"
        " the two almost touch. Then the bound falls as 1/T, and the measurement exponentially.",
        draw,
        size=(8.5, 3.4),
    )


def error_against_beta(quick: bool = False) -> Figure:
    """Draw the distance of the limit from the truth, its radial and angular parts and its bound, against β."""
    seeds, count, ratio = (6, 5, 4.0) if quick else (20, 9, 2.0)
    betas = [beta_bound(k=_K, delta=_DELTA) * ratio**-j for j in range(count)]
    path, truth = _run(betas, seeds=seeds, steps=1500, every=1500, tolerance=1e-13)
    w, u, theta = path.w[-1], path.u[-1], path.theta[-1]
    beta = torch.tensor([setting.beta for setting in path.settings], dtype=torch.float64).unsqueeze(-1)
    promised = pi / (pi - theta) * _K * beta * size(w - u)
    parts = [size(w - truth), (path.norm[-1] - 1).abs(), theta, promised]
    whole, radial, angular, bound = (part.mean(dim=-1).view(len(LABELS), len(betas)) for part in parts)

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(1, 3, sharex=True, sharey=True)
        for i, (axes, name) in enumerate(zip(panels, LABELS, strict=True)):
            axes.loglog(betas, bound[i], color=PALETTE[4], linewidth=2.5, label="bound (π/(π−θ̄))kβ‖w̄ − ū‖")
            axes.loglog(betas, whole[i], "o-", color=PALETTE[0], markersize=4, label="‖w̄ − w*‖")
            axes.loglog(betas, angular[i], "^:", color=PALETTE[2], markersize=4, label="angular part θ̄")
            axes.loglog(betas, radial[i], "s--", color=PALETTE[1], markersize=4, label="radial part |‖w̄‖ − 1|")
            axes.set(title=LABELS[name], xlabel="β")
            axes.minorticks_off()
        panels[0].set_ylabel(f"mean over {seeds} runs")
        panels[0].legend(fontsize=8, loc="lower right")

    return Figure(
        "error-against-beta",
        f"Theorem 1 (iii): the error is proportional to β for all three penalties (d = {_D}, k = {_K}, threshold"
        " 0.3/√d), and stays below the corrected bound. The radial part, which the proof's O(kβ sin γ) leaves out, is"
        " as large as the angular one for ℓ1; for ℓ0, which does not shrink, it is small, and the error is all angle.",
        draw,
        size=(8.5, 3.6),
    )


def _run(
    betas: list[float], *, seeds: int, steps: int, every: int, tolerance: float = 0.0
) -> tuple[Trajectory, Tensor]:
    """Run each penalty with each β at the threshold 0.3/√d, from the angle π − δ; also return the truths."""
    generator = torch.Generator().manual_seed(1)
    truth = torch.randn(seeds, _D, generator=generator, dtype=torch.float64)
    truth[:, _D // 2 :] = 0
    truth = unit(truth)
    start = starts(truth, pi - _DELTA, generator)
    settings = []
    for name, beta in product(LABELS, betas):
        penalty = PENALTIES[name](1.0).with_threshold(0.3 / sqrt(_D), 1 / beta)
        settings.append(Setting(penalty, k=_K, beta=beta, eta=1 / (beta + float(curvature(_K)))))
    return simulate(settings, truth, start, steps=steps, every=every, tolerance=tolerance), truth


def sparsity_against_error(quick: bool = False) -> Figure:
    """Draw the error against the zeros, with one point for each λ, and mark one λ on all curves."""
    shares = [0.03 * 2.5**j for j in range(4)] if quick else [0.03 * 1.35**j for j in range(12)]
    seeds = 6 if quick else 40
    study = sparsity_study(shares, seeds=seeds, steps=100 if quick else 300)
    marked = len(shares) // 2

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(1, 3, sharex=True, sharey=True)
        for axes, name in zip(panels, LABELS, strict=True):
            p = study.penalties.index(name)
            for o, output in enumerate(OUTPUTS):
                zeros, loss = 100 * study.sparsity[o, p], study.loss[o, p]
                style = {"color": PALETTE[o], "markersize": 4, "linewidth": 1.2}
                hollow = {"markerfacecolor": "none"} if output == "admm" else {}
                axes.semilogy(zeros, loss, _OUTPUT_STYLES[output], label=_OUTPUT_LABELS[output], **style, **hollow)
            zeros, loss = 100 * study.sparsity[:, p, marked], study.loss[:, p, marked]
            ring = {"markersize": 11, "markerfacecolor": "none", "markeredgecolor": PALETTE[3], "markeredgewidth": 1.8}
            axes.semilogy(zeros, loss, "o", label=f"λ/β = {shares[marked]:.2f}/√d", **ring)
            axes.set(title=LABELS[name], xlabel="zeros (%)", xlim=(0, 102))
            axes.minorticks_off()
        panels[0].set_ylabel(f"mean squared error f, mean over {seeds} runs")
        handles, labels = panels[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)

    return Figure(
        "sparsity-against-error",
        "What is the best output? (d = 20, k = 4; w* has 5 large and 15 small entries; each point is one λ; lower and"
        " further right is better.) At the same number of zeros, w on the support of u has the smallest error, by far"
        " for ℓ1 and Tℓ1. Their u pays for its shrinkage and lies on, or a little above, the curve of ADMM's u. For ℓ0,"
        " u is w on its support, and ADMM's u is behind. The rings are the same λ: there ADMM has fewer zeros and a"
        " smaller error, so compare at equal zeros, not at equal λ.",
        draw,
        size=(8.5, 3.9),
    )
