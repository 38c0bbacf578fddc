"""A portrait of the plane of w and w*: where the method flows, and where the printed order cycles."""

from math import cos, sin

import matplotlib as mpl
import torch
from matplotlib.figure import Figure as Canvas

from rvsm.pages import PALETTE, Figure
from rvsm.paper.theory.network import critical_points, gradient
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.trajectory import Setting
from rvsm.penalties import L0


def phase_portrait(quick: bool = False) -> Figure:
    """Draw the flow of RVSM ℓ0 for d = 2, with the saddle, both orders' paths and the 2-cycle.

    It takes a second, so it is the same if it is to be quick.
    """
    k, beta, eta = 4, 0.066, 1.8
    penalty = L0(lam=0.36 * beta)
    truth = torch.tensor([cos(1.2), sin(1.2)], dtype=torch.float64)
    start = torch.tensor([cos(2.5), sin(2.5)], dtype=torch.float64)
    one = Setting(penalty, k=k, beta=beta, eta=eta)
    proof = simulate(one, truth, start, steps=400, empty_ok=True).w[:, 0, 0]
    printed = simulate(one, truth, start, steps=400, order="printed", empty_ok=True).w[:, 0, 0]
    side = torch.linspace(-1.25, 1.25, 60, dtype=torch.float64)
    y, x = torch.meshgrid(side, side, indexing="ij")
    grid = torch.stack([x, y], dim=-1).reshape(-1, 2) + 1e-9
    field = -gradient(grid, truth, k=k) - beta * (grid - penalty.prox(grid, 1 / beta))
    flow = field.reshape(60, 60, 2)
    saddle = critical_points(truth, k=k).saddle
    t = penalty.threshold(1 / beta)

    def draw(canvas: Canvas) -> None:
        plane, cycle = canvas.subplots(1, 2, width_ratios=(1.25, 1))
        arrows = {"density": 1.1, "linewidth": 0.6, "arrowsize": 0.7}
        plane.streamplot(x.numpy(), y.numpy(), flow[..., 0].numpy(), flow[..., 1].numpy(), color="#9aa3ad", **arrows)
        for axis in (plane.axvspan, plane.axhspan):
            axis(-t, t, color=PALETTE[5], alpha=0.08, linewidth=0)
        plane.plot(*proof.T, "o-", color=PALETTE[0], markersize=3, label="proof's order")
        plane.plot(*printed[:60].T, "s-", color=PALETTE[1], markersize=3, linewidth=1, label="printed order")
        plane.plot(*truth, "*", color=PALETTE[3], markersize=14, label="w*")
        assert saddle is not None
        plane.plot(*saddle, "X", color=PALETTE[4], markersize=9, label="saddle of f")
        plane.set(xlabel="w₁", ylabel="w₂", xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
        plane.legend(fontsize=8, loc="lower right")
        near = plane.inset_axes((0.03, 0.03, 0.36, 0.36), facecolor=mpl.rcParams["figure.facecolor"])
        near.axhspan(0.5, t, color=PALETTE[5], alpha=0.15, linewidth=0)
        near.plot(*proof.T, "o-", color=PALETTE[0], markersize=4)
        near.plot(*printed[:60].T, "s-", color=PALETTE[1], markersize=3, linewidth=1)
        near.plot(*truth, "*", color=PALETTE[3], markersize=13)
        near.set(xlim=(0.21, 0.385), ylim=(0.8, 0.975), xticks=(), yticks=())
        near.spines[["top", "right"]].set_visible(True)
        plane.indicate_inset_zoom(near, edgecolor=mpl.rcParams["text.color"])
        last = torch.arange(361, 401)
        rest = proof[-1, 1].expand(40)  # the proof's order has stopped before: its gradient is exactly zero
        cycle.plot(last, rest, "o-", color=PALETTE[0], markersize=3, label="proof's order")
        cycle.plot(last, printed[361:, 1], "s-", color=PALETTE[1], markersize=3, linewidth=1, label="printed order")
        cycle.axhline(t, color=PALETTE[5], linestyle="--", linewidth=1, label="threshold √(2λ/β)")
        cycle.set(xlabel="step t", ylabel="w₂", ylim=(0.82, 0.985))
        cycle.legend(fontsize=8, loc="upper right")

    return Figure(
        "phase-portrait",
        "ℓ0 in two dimensions (k = 4, β = 0.066, λ = 0.36β, η = 1.8; the hypotheses of Corollary 1.2 hold with δ ="
        " 1 and L = L⁺, the largest curvature of the loss). Left: the flow of the proof's order, with the stripes"
        " in which a coordinate of u is zero; the inset shows the neighbourhood of w*, where the two paths part. Right:"
        " the last 40 of 400 steps. The proof's order rests; the printed order jumps across the threshold and back for"
        " ever, because each step is pulled towards the u of the step before.",
        draw,
        size=(8.5, 4.4),
    )
