"""Pictures of the effects of data instead of expectations, and of a second layer."""

import torch
from matplotlib.figure import Figure as Canvas

from rvsm.pages import PALETTE, Figure
from rvsm.paper.theory.extensions import finite_sample, mini_batches, two_layers


def finite_samples(quick: bool = False) -> Figure:
    """Draw the distance from the population's limit against the size of the sample."""
    study = finite_sample((100, 400), seeds=3, steps=60) if quick else finite_sample()
    sizes = torch.tensor(study.sizes, dtype=torch.float64)
    guide = float(study.distance[0].mean()) * (sizes[0] / sizes).sqrt()
    rise = float(study.rise.max())
    descent = "never rose" if rise <= 0 else f"rose by at most {rise:.1e} in a step"

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        axes.loglog(sizes, study.distance, "o", color=PALETTE[0], markersize=5, alpha=0.6)
        axes.plot([], [], "o", color=PALETTE[0], label="one sample")
        axes.loglog(sizes, guide, color=PALETTE[1], label="∝ 1/√N")
        axes.set(xlabel="inputs N", ylabel="‖w̄(N) − w̄‖", xticks=study.sizes, xticklabels=map(str, study.sizes))
        axes.xaxis.minorticks_off()
        axes.legend()

    return Figure(
        "finite-sample",
        "A finite sample of N inputs instead of the expectation (k = 4, d = 6, ℓ1, no noise; a point is one sample):"
        " the limit comes to the population's as 1/√N. The empirical loss has kinks, so descent is not promised; in"
        f" these runs the Lagrangian {descent}.",
        draw,
    )


def batches(quick: bool = False) -> Figure:
    """Draw the distance from the population's limit against time, for several batch sizes."""
    study = mini_batches((4, 32), seeds=4, steps=120) if quick else mini_batches()
    runs = study.distance.shape[-1]

    def draw(canvas: Canvas) -> None:
        left, right = canvas.subplots(1, 2)
        for i, batch in enumerate(study.batches):
            middle = study.distance[i].median(dim=-1).values
            left.semilogy(study.steps, middle, color=PALETTE[i], linewidth=1.1, label=f"batch {batch}")
        left.set(xlabel="step t", ylabel=f"‖wᵗ − w̄‖, median of {runs} runs")
        left.legend(fontsize=8)
        sizes = torch.tensor(study.batches, dtype=torch.float64)
        right.loglog(sizes, study.floor, "o-", color=PALETTE[0], label="measured")
        right.loglog(sizes, study.floor[0] * (sizes[0] / sizes).sqrt(), "--", color=PALETTE[1], label="∝ 1/√batch")
        right.set(
            xlabel="batch",
            ylabel="mean distance in the last quarter",
            xticks=study.batches,
            xticklabels=map(str, study.batches),
        )
        right.legend(fontsize=8)
        right.xaxis.minorticks_off()

    return Figure(
        "mini-batches",
        "Fresh mini-batches with noisy labels (k = 4, d = 6, ℓ1, η three tenths of the theorem's). The iterates come"
        " down as fast as before and then move about the population's limit, at a distance that falls as 1/√batch.",
        draw,
        size=(8.0, 3.6),
    )


def second_layer(quick: bool = False) -> Figure:
    """Draw descent, angles, scale and support of a network whose output layer is trained, too."""
    study = two_layers(seeds=8, steps=150) if quick else two_layers()
    starts = study.lagrangian.shape[1]
    kept = float(study.support[-1].double().mean())

    def draw(canvas: Canvas) -> None:
        (first, second), (third, fourth) = canvas.subplots(2, 2, sharex=True)
        for seed in range(starts):
            first.semilogy(study.steps, study.lagrangian[:, seed], color=PALETTE[0], linewidth=0.7, alpha=0.6)
            second.plot(study.steps, study.theta[:, seed], color=PALETTE[0], linewidth=0.7, alpha=0.6)
        second.plot([], [], color=PALETTE[0], label="w to w*")
        middle = study.output_theta.median(dim=-1).values
        second.plot(study.steps, middle, "--", color=PALETTE[1], label="v to v*, median")
        third.plot(study.steps, study.norm.median(dim=-1).values, color=PALETTE[0], label="‖w‖, median")
        third.plot(study.steps, study.scale.median(dim=-1).values, "--", color=PALETTE[1], label="‖w‖‖v‖ / truth's")
        fourth.plot(study.steps, study.support.double().mean(dim=-1), color=PALETTE[0], label="non-zeros of u, mean")
        fourth.axhline(study.truth_support, color=PALETTE[3], linestyle=":", label="non-zeros of w*")
        first.set(ylabel="ℒ, one line for each start")
        second.set(ylabel="angle", ylim=(0, 2.2))
        third.set(xlabel="step t", ylim=(0, 1.6))
        fourth.set(xlabel="step t", ylim=(0, 6.3))
        for axes in (second, third, fourth):
            axes.legend(fontsize=8)

    return Figure(
        "two-layers",
        "A second layer: output weights v in place of the fixed 1/k, trained by plain gradient descent while RVSM acts"
        f" on w (k = 4, d = 6, ℓ1, {starts} starts, population loss in closed form). The Lagrangian falls from every"
        " start, and both angles go to zero. But w and v can trade their scales without changing the network, and a"
        " penalty on w alone rewards that: ‖w‖ goes on shrinking while the product stays, so ℒ does not settle. The"
        f" theorem's network has no such freedom. u keeps {kept:.1f} of {study.truth_support} non-zeros on average.",
        draw,
        size=(8.0, 5.4),
    )
