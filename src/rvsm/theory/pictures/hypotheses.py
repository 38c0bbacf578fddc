"""Pictures of what happens outside the hypotheses."""

from math import pi

from matplotlib.figure import Figure as Canvas

from rvsm.pages import PALETTE, Figure
from rvsm.theory.outside import angle_map, start_at_pi, threshold_study
from rvsm.theory.pictures.convergence import LABELS, STYLES


def beta_and_start() -> Figure:
    """Draw a map of the limit's angle over β and the starting angle."""
    study = angle_map()

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        mesh = axes.pcolormesh(
            study.multiples.numpy(), study.margins.numpy(), study.theta.T.numpy(), vmin=0, vmax=pi, cmap="cividis"
        )
        bar = canvas.colorbar(mesh, ax=axes)
        bar.set_label("largest limit angle θ̄ of 12 runs")
        axes.axvline(1, color="white", linewidth=2)
        axes.axvline(1, color=PALETTE[1], linewidth=1.5, linestyle="--", label="the theorem's bound")
        axes.set(xscale="log", xlabel="β / bound for this start", ylabel="δ = π − θ⁰")
        axes.grid(visible=False)
        axes.legend(loc="upper left", labelcolor="white")

    return Figure(
        "beta-and-start",
        "β too large, or a start too close to −w* (ℓ1, k = 12, d = 10). Left of the dashed line the theorem holds,"
        " and the limit is close to w* (dark). To its right the bound still has some slack; beyond it, bright cells"
        " are runs that have stopped near the opposite of w*.",
        draw,
        size=(7.0, 4.4),
    )


def threshold() -> Figure:
    """Draw zeros, empty copies and errors against λ/β."""
    study = threshold_study()

    def draw(canvas: Canvas) -> None:
        left, right = canvas.subplots(1, 2)
        for i, name in enumerate(LABELS):
            p = study.penalties.index(name)
            left.semilogx(study.shares, 100 * study.sparsity[p], STYLES[name], color=PALETTE[i], label=LABELS[name])
            right.semilogx(study.shares, study.error_w[p], STYLES[name], color=PALETTE[i], label=f"w̄, {LABELS[name]}")
            right.semilogx(study.shares, study.error_u[p], STYLES[name], color=PALETTE[i], linewidth=0.8, alpha=0.7)
        for axes in (left, right):
            axes.axvline(1, color=PALETTE[4], linestyle="-.", linewidth=1)
            axes.set_xlabel("(λ/β)·√d")
        left.set(ylabel="zeros of ū (%)")
        right.set(ylabel="distance from w*: w̄ thick, ū thin")
        left.legend()
        right.legend(fontsize=8)

    return Figure(
        "threshold",
        "The condition λ/β < 1/√d, the upright line (k = 4, d = 10, dense truths, β at its bound). It is a condition"
        " on ℓ1's threshold: with the same λ/β, ℓ0 and Tℓ1 have larger thresholds, and at the line their u is empty or"
        " almost so. w̄ stays close to w* all the same, because β is small.",
        draw,
        size=(8.5, 3.8),
    )


def opposite() -> Figure:
    """Draw how long a start near the angle π takes to turn."""
    study = start_at_pi()
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
        axes.set(xlabel="π − θ⁰", ylabel="steps until θ < π/2")

    return Figure(
        "start-at-pi",
        f"Starts ever closer to the opposite of w* (ℓ1, k = 4, d = 6, {runs} truths; a line is one of them). For most,"
        " thresholding pushes w off the axis and the time to turn does not depend on the distance; where it does not"
        " push, the time grows as the logarithm, as at a saddle;"
        f" {int(never.sum())} of {runs} never turn, because there thresholding holds w. From exactly π,"
        f" {at_pi} of {runs} turn.",
        draw,
    )
