"""Pictures of runs outside the hypotheses."""

from math import pi

import torch
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from rvsm.pages import PALETTE, Figure
from rvsm.paper.theory.outside_hypotheses import angle_map, start_at_pi, threshold_study
from rvsm.paper.theory.pictures.convergence import LABELS, STYLES
from rvsm.paper.theory.problems import PENALTIES


def beta_and_start(quick: bool = False) -> Figure:
    """Draw a map of the limit's angle over β and the starting angle."""
    study = angle_map(multiples=5, margins=4, seeds=4, steps=200) if quick else angle_map()

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        x, y = _edges(study.multiples.log()).exp().numpy(), _edges(study.margins).numpy()
        mesh = axes.pcolormesh(x, y, study.theta.T.numpy(), vmin=0, vmax=pi, cmap="cividis", rasterized=True)
        bar = canvas.colorbar(mesh, ax=axes)
        bar.set_label(f"largest limit angle θ̄ of {study.seeds} runs")
        for i, j in (study.empty > 0.5).nonzero().tolist():
            size = (x[i + 1] - x[i], y[j + 1] - y[j])
            axes.add_patch(Rectangle((x[i], y[j]), *size, fill=False, hatch="//", edgecolor="white", linewidth=0))
        bound = axes.axvline(1, color=PALETTE[1], linewidth=2, linestyle="--")
        axes.set(xscale="log", xlabel="β / bound for this start", ylabel="δ = π − θ⁰")
        axes.grid(visible=False)
        hatched = Patch(facecolor=mesh.cmap(0.0), edgecolor="white", hatch="//")
        canvas.legend(
            [bound, hatched], ["the theorem's bound on β", "ū is empty"], loc="outside upper left", ncols=2, fontsize=9
        )

    return Figure(
        "beta-and-start",
        "β too large, or a start too close to −w* (ℓ1, k = 12, d = 10, λ/β = .5/√d). Left of the dashed line the"
        " theorem holds, and the limit is close to w* (dark). To its right the bound still has some slack; beyond it,"
        " bright cells are runs that have stopped near the opposite of w*. In the hatched corner λ is so large that u"
        " ends empty in most runs: then only a short w along w* is stationary, so its angle is small though nothing is"
        " learned.",
        draw,
        size=(7.0, 4.6),
    )


def _edges(middles: Tensor) -> Tensor:
    """Return the edges of cells from their centres, which are evenly spaced."""
    half = (middles[1] - middles[0]) / 2
    return torch.cat([middles - half, middles[-1:] + half])


def threshold(quick: bool = False) -> Figure:
    """Draw zeros, empty copies and errors against λ/β."""
    study = threshold_study(points=5, seeds=6, steps=100) if quick else threshold_study()

    def draw(canvas: Canvas) -> None:
        left, right = canvas.subplots(1, 2)
        for i, name in enumerate(LABELS):
            p, colour, style, label = list(PENALTIES).index(name), PALETTE[i], STYLES[name], LABELS[name]
            left.semilogx(study.shares, 100 * study.sparsity[p], style, color=colour, label=label)
            right.semilogx(study.shares, study.error_w[p], style, color=colour, linewidth=2.2, label=f"w̄, {label}")
            right.semilogx(study.shares, study.error_u[p], style, color=colour, linewidth=0.9, label=f"ū, {label}")
        for axes in (left, right):
            axes.axvline(1, color=PALETTE[4], linestyle="-.", linewidth=1.5, label="λ/β = 1/√d")
            axes.set_xlabel("(λ/β)·√d")
        left.set(ylabel="zeros of ū (%)", ylim=(0, 104))
        right.set(ylabel="distance from w*", ylim=(0, 1.05))
        left.legend(loc="lower right")
        right.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.0, 0.98))

    return Figure(
        "threshold",
        "The condition λ/β < 1/√d, the upright line (k = 4, d = 10, dense truths, β at its bound). It is a condition"
        " on ℓ1's threshold: with the same λ/β, ℓ0 and Tℓ1 have larger thresholds, and at the line their u is empty or"
        " almost so (thin curves: ū is then as far from w* as 0 is). w̄ (thick) stays close to w* all the same, because"
        " β is small.",
        draw,
        size=(8.5, 4.0),
    )


def opposite(quick: bool = False) -> Figure:
    """Draw how long a start near the angle π takes to turn."""
    study = start_at_pi(steps=300, smallest=5) if quick else start_at_pi()
    offsets, steps = study.offsets[:-1], study.steps[:-1]
    never = (steps < 0).all(dim=0)
    runs = steps.shape[1]
    at_pi = int((study.theta[-1] < pi / 2).sum())

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for seed in range(runs):
            turned = steps[:, seed] >= 0
            axes.semilogx(offsets[turned], steps[turned, seed], "o-", color=PALETTE[0], markersize=4, linewidth=0.7)
        axes.invert_xaxis()
        axes.minorticks_off()
        axes.set(xlabel="π − θ⁰", ylabel="steps until θ < π/2")

    return Figure(
        "start-at-pi",
        f"Starts ever closer to the opposite of w* (ℓ1, k = 4, d = 6, {runs} truths; a line is one of them, and some"
        " lie on each other). For most, thresholding pushes w off the axis and the time to turn does not depend on the"
        f" distance; where it does not push, the time grows as the logarithm, as at a saddle; {int(never.sum())} of"
        f" {runs} never turn, because there thresholding holds w. From exactly π, {at_pi} of {runs} turn.",
        draw,
    )
