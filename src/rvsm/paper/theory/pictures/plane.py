"""Pictures of the plane of w and w*: the flow and both orders' paths; RVSM beside the gradient at u."""

from math import cos, sin

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from torch import Tensor

from rvsm.pages import PALETTE, Figure
from rvsm.paper.theory.counterexamples import two_cycle
from rvsm.paper.theory.network import critical_points, curvature, gradient, loss
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.trajectory import GradientPoint, Setting, Trajectory
from rvsm.penalties import L0, L1, Penalty

_K, _WEAK = 4, 0.066


def phase_portrait(quick: bool = False) -> Figure:
    """Draw the flow of RVSM ℓ0 for d = 2, with the saddle, both orders' paths and the 2-cycle.

    It takes a second, so the quick version is the same.
    """
    penalty = L0(lam=0.36 * _WEAK)
    truth = torch.tensor([cos(1.2), sin(1.2)], dtype=torch.float64)
    proof, printed = (two_cycle(order=order).w[:, 0, 0] for order in ("proof", "printed"))
    x, y, points = _grid(-1.25, 1.25, 60)
    points = points + 1e-9
    flow = -gradient(points, truth, k=_K) - _WEAK * (points - penalty.prox(points, 1 / _WEAK))
    across, up = flow.view(60, 60, 2).unbind(dim=-1)
    saddle = critical_points(truth, k=_K).saddle
    t = penalty.threshold(1 / _WEAK)

    def draw(canvas: Canvas) -> None:
        plane, cycle = canvas.subplots(1, 2, width_ratios=(1.25, 1))
        arrows = {"density": 1.1, "linewidth": 0.6, "arrowsize": 0.7}
        plane.streamplot(x.numpy(), y.numpy(), across.numpy(), up.numpy(), color="#9aa3ad", **arrows)
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
        rest = proof[-1, 1].expand(40)  # the proof's order has already stopped: its gradient is exactly zero
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


def two_paths(quick: bool = False) -> Figure:
    """Draw w and u of both methods for d = 2, over the level lines of f + λ‖·‖₁, or of f for ℓ0."""
    high = float(curvature(_K))
    truth = torch.tensor([cos(0.5), sin(0.5)], dtype=torch.float64)
    start = 1.2 * torch.tensor([cos(1.8), sin(1.8)], dtype=torch.float64)
    panels: list[tuple[str, Penalty, float]] = [
        ("ℓ1, β = 0.066", L1(lam=0.3 * _WEAK), _WEAK),
        ("ℓ0, β = L⁺ = 0.489", L0(lam=0.18 * high), high),
        ("ℓ0, β = 0.066: a cycle", L0(lam=0.18 * _WEAK), _WEAK),
    ]
    settings = [Setting(penalty, k=_K, beta=beta, eta=1 / (beta + high)) for _, penalty, beta in panels]
    courses: tuple[GradientPoint, ...] = ("w", "u")
    paths = {at: simulate(settings, truth, start, steps=150 if quick else 400, gradient=at) for at in courses}
    critical = [_critical_points(penalty, truth) for _, penalty, _ in panels]
    x, y, points = _grid(-0.7, 1.35, 60 if quick else 150)

    def draw(canvas: Canvas) -> None:
        for panel, axes in enumerate(canvas.subplots(1, 3)):
            title, penalty, beta = panels[panel]
            added = penalty.lam * points.abs().sum(dim=-1) if isinstance(penalty, L1) else 0.0
            height = (loss(points, truth, k=_K) + added).view(x.shape)
            axes.contour(x.numpy(), y.numpy(), height.numpy(), 14, colors="#9aa3ad", linewidths=0.5, alpha=0.7)
            t = penalty.threshold(1 / beta)
            for stripe in (axes.axvspan, axes.axhspan):
                stripe(-t, t, color=PALETTE[5], alpha=0.07, linewidth=0)
            for i, at in enumerate(courses):
                label = "RVSM (α = 1)" if at == "w" else "gradient at u (α = 0)"
                _draw_path(axes, paths[at], panel, PALETTE[i], label)
            axes.plot(*truth, "*", color=PALETTE[3], markersize=13, label="w*")
            hollow = {"markersize": 8, "markerfacecolor": "none", "markeredgewidth": 1.6, "linestyle": "none"}
            axes.plot(*critical[panel].T, "D", color=PALETTE[4], label="critical points of f + λP", **hollow)
            axes.set(title=title, xlabel="first weight", xlim=(-0.7, 1.35), ylim=(-0.7, 1.35), aspect="equal")
        canvas.axes[0].set_ylabel("second weight")
        handles, labels = canvas.axes[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8)

    return Figure(
        "two-paths",
        "Ours, not the paper's: RVSM, whose gradient is taken at w, and the same with the gradient at u = prox(w), in"
        " two dimensions (k = 4, λ/β = 0.3 for ℓ1 and 0.18 for ℓ0, η = 1/(β+L⁺), one start; the level lines are those"
        " of f + λP for ℓ1 and of f for ℓ0; in the stripes a coordinate of u is zero). Lines are w, dots are u, and"
        " rings are around the last two u. Left and middle: with the gradient at u the limit of u is a critical"
        " point of f + λP; RVSM's u is short of it. Right: with a β below the curvature no critical point satisfies the"
        " conditions of a limit, and the second weight crosses its threshold for ever, while RVSM rests.",
        draw,
        size=(9.5, 3.7),
    )


def _grid(low: float, high: float, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the coordinates x and y of a square grid, [count, count], and its points, [count², 2]."""
    side = torch.linspace(low, high, count, dtype=torch.float64)
    y, x = torch.meshgrid(side, side, indexing="ij")
    return x, y, torch.stack([x, y], dim=-1).reshape(-1, 2)


def _draw_path(axes: Axes, path: Trajectory, setting: int, colour: str, label: str) -> None:
    w, u = path.w[:, setting, 0], path.u[:, setting, 0]
    axes.plot(*w.T, "-", color=colour, linewidth=1.3, label=f"{label}: w")
    axes.plot(*u.T, ".", color=colour, markersize=4, alpha=0.8, label=f"{label}: u")
    axes.plot(*u[-2:].T, "o", color=colour, markersize=13, markerfacecolor="none", markeredgewidth=1.6)


def _critical_points(penalty: Penalty, truth: Tensor) -> Tensor:
    """Return the minimisers of f + λP on each support: for ℓ1 by proximal gradient, for ℓ0 in closed form."""
    if isinstance(penalty, L0):
        # Along a unit vector e, f is a parabola with its minimum at (⟨∇f(e), −e⟩ + L⁺)/L⁺.
        axes = torch.cat([torch.eye(2), -torch.eye(2)]).double()
        down = -(gradient(axes, truth, k=_K) * axes).sum(dim=-1, keepdim=True)
        return torch.cat([truth.unsqueeze(0), (1 + down / curvature(_K)) * axes])
    angles = torch.arange(12, dtype=torch.float64)
    u, step = torch.stack([angles.cos(), angles.sin()], dim=-1), 1 / float(curvature(_K))
    for _ in range(2000):
        u = penalty.prox(u - step * gradient(u, truth, k=_K), step)
    found: Tensor = torch.unique((u * 1e6).round() / 1e6, dim=0)
    return found
