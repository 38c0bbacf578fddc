"""Pictures of what changes with data instead of expectations, and with a second layer."""

from math import pi

import torch
from matplotlib.figure import Figure as Canvas

from rvsm.pages import PALETTE, Figure
from rvsm.theory.beyond import finite_sample, mini_batches, two_layers


def finite_samples() -> Figure:
    """Draw the distance from the population's limit, and the rises of the Lagrangian, against the sample."""
    study = finite_sample()
    sizes = torch.tensor(study.sizes, dtype=torch.float64)
    guide = float(study.distance[0].mean()) * (sizes[0] / sizes).sqrt()

    def draw(canvas: Canvas) -> None:
        left, right = canvas.subplots(1, 2)
        for axes, values in ((left, study.distance), (right, study.rise.clamp_min(1e-17))):
            for seed in range(values.shape[1]):
                axes.loglog(sizes, values[:, seed], "o", color=PALETTE[0], markersize=4, alpha=0.6)
        left.loglog(sizes, guide, color=PALETTE[1], label="∝ 1/√N")
        left.set(xlabel="inputs N", ylabel="‖w̄_N − w̄‖")
        left.legend()
        right.set(xlabel="inputs N", ylabel="largest rise of ℒ in one step")

    return Figure(
        "finite-sample",
        "A finite sample of N inputs instead of the expectation (k = 4, d = 6, ℓ1, no noise; a point is one sample). Left:"
        " the limit comes to the population's as 1/√N. Right: the empirical loss has kinks, so the Lagrangian is no longer"
        " strictly monotone; its rises are tiny.",
        draw,
        size=(8.0, 3.6),
    )


def batches() -> Figure:
    """Draw the distance from the population's limit against time, for several batch sizes."""
    study = mini_batches()

    def draw(canvas: Canvas) -> None:
        left, right = canvas.subplots(1, 2)
        for i, batch in enumerate(study.batches):
            middle = study.distance[i].median(dim=-1).values
            left.semilogy(study.steps, middle, color=PALETTE[i], linewidth=1.1, label=f"batch {batch}")
        left.set(xlabel="step t", ylabel="‖wᵗ − w̄‖, median of 8 runs")
        left.legend(fontsize=8)
        sizes = torch.tensor(study.batches, dtype=torch.float64)
        right.loglog(sizes, study.floor, "o-", color=PALETTE[0], label="measured")
        right.loglog(sizes, study.floor[0] * (sizes[0] / sizes).sqrt(), "--", color=PALETTE[1], label="∝ 1/√batch")
        right.set(xlabel="batch", ylabel="mean distance in the last quarter")
        right.legend(fontsize=8)

    return Figure(
        "mini-batches",
        "Fresh mini-batches with noisy labels (k = 4, d = 6, ℓ1, η three tenths of the theorem's). The iterates come down"
        " as fast as before and then move about the population's limit, at a distance that falls as 1/√batch.",
        draw,
        size=(8.0, 3.6),
    )


def second_layer() -> Figure:
    """Draw descent, angle and support of a network whose output layer is trained, too."""
    study = two_layers()

    def draw(canvas: Canvas) -> None:
        first, second, third = canvas.subplots(1, 3)
        above = study.lagrangian - study.lagrangian[-1] + 1e-12
        for seed in range(above.shape[1]):
            first.semilogy(study.steps, above[:, seed], color=PALETTE[0], linewidth=0.7, alpha=0.6)
            second.plot(study.steps, study.theta[:, seed], color=PALETTE[0], linewidth=0.7, alpha=0.6)
        second.plot([], [], color=PALETTE[0], label="w to w*")
        second.plot(
            study.steps, study.output_theta.median(dim=-1).values, "--", color=PALETTE[1], label="v to v*, median"
        )
        third.plot(study.steps, study.support.double().mean(dim=-1), color=PALETTE[0], label="non-zeros of u, mean")
        third.axhline(study.truth_support, color=PALETTE[3], linestyle=":", label="non-zeros of w*")
        first.set(xlabel="step t", ylabel="ℒ − its last value", ylim=(1e-10, 10))
        second.set(xlabel="step t", ylabel="angle", ylim=(0, pi))
        third.set(xlabel="step t", ylim=(0, 6.3))
        second.legend(fontsize=8)
        third.legend(fontsize=8)

    return Figure(
        "two-layers",
        "A second layer: output weights v in place of the fixed 1/k, trained by plain gradient descent while RVSM acts on w"
        " (k = 4, d = 6, ℓ1, 24 starts, population loss in closed form). The Lagrangian still falls from every start, and"
        " u finds the support of w*; the theorem has nothing to say here.",
        draw,
        size=(9.0, 3.4),
    )
