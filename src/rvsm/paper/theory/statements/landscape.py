"""Lemma 3: where f is smooth, its gradient and its critical points."""

from math import pi

import torch
from torch import Tensor

from rvsm.paper.theory import network as net
from rvsm.paper.theory.problems import starts
from rvsm.paper.theory.sweep import Sweep
from rvsm.paper.theory.verdict import Verdict, check

_TRUTH = torch.tensor([0.36, 0.48, 0.8], dtype=torch.float64)


def differentiable(sweep: Sweep) -> Verdict:
    """Compare f with its tangent plane at points other than 0, including the axis; then compare the slopes at 0."""
    generator = torch.Generator().manual_seed(15)
    count = 300 if sweep.quick else 3000
    theta = torch.rand(count, generator=generator, dtype=torch.float64) * pi
    theta[: count // 3] = torch.where(torch.arange(count // 3) % 2 == 0, 0.0, pi).double()
    norm = 10 ** (4 * torch.rand(count, generator=generator, dtype=torch.float64) - 3)
    w = starts(_TRUTH.expand(count, -1), theta, generator, norm=norm)
    around = net.unit(torch.randn(count, 3, generator=generator, dtype=torch.float64))
    rest, kink = [], []
    for k in (1, 2, 12):
        slope = (net.gradient(w, _TRUTH, k=k) * around).sum(dim=-1)
        curved = net.hessian_eigenvalues(w, _TRUTH, k=k).abs().amax(dim=-1)
        for share in (1e-1, 1e-2, 1e-3):
            step = share * norm
            change = net.loss(w + step.unsqueeze(-1) * around, _TRUTH, k=k) - net.loss(w, _TRUTH, k=k)
            # Differentiable: the deviation from the tangent plane is of second order in the step.
            rounding = 1e-15 * (1 + norm.square())
            rest.append(((change - step * slope).abs() - rounding) / (step.square() * (curved + 1 / norm)))
        ahead, behind = (net.loss(sign * 1e-6 * around, _TRUTH, k=k) for sign in (1, -1))
        # If f were differentiable at 0, opposite slopes would cancel in every direction.
        kink.append(((ahead + behind - 2 * net.loss(0 * _TRUTH, _TRUTH, k=k)) / 1e-6).abs().max())
    remainder, corner = torch.cat(rest).max(), torch.stack(kink).min()
    return Verdict(
        where="Lemma 3, 1",
        claim="f is differentiable if and only if w ≠ 0",
        printed=check(1 - remainder) & check(corner, tolerance=-1e-3),
        evidence=f"{3 * count} points with ‖w‖ from 0.001 to 10, a third of them on the axis of w*, k = 1, 2, 12: f"
        f" minus its tangent plane is ≤ {remainder:.2f}·(curvature + 1/‖w‖)·step² for steps of a tenth to a thousandth"
        f" of ‖w‖; at 0 the slopes ahead and behind, which would cancel, sum to {corner:.3f} or more in some direction",
    )


def gradient(sweep: Sweep) -> Verdict:
    """Compare ∇f with automatic differentiation of f."""
    generator = torch.Generator().manual_seed(2)
    worst, cases = 0.0, 200 if sweep.quick else 4000
    for d in (2, 3, 10):
        w = torch.randn(cases, d, generator=generator, dtype=torch.float64).requires_grad_()
        truth = torch.randn(cases, d, generator=generator, dtype=torch.float64)
        k = torch.randint(1, 20, (cases,), generator=generator).double()
        (expected,) = torch.autograd.grad(net.loss(w, truth, k=k).sum(), w)
        worst = max(worst, float((net.gradient(w.detach(), truth, k=k) - expected).norm(dim=-1).max()))
    return Verdict(
        where="Lemma 3, eq. (13), gradient",
        claim="∇f(w) = (1/k²)[(k + (k²−k)/π − (k/π)(‖w*‖/‖w‖)sin θ − ((k²−k)/π)‖w*‖/‖w‖)w − (k/π)(π−θ)w*]",
        printed=check(1 - worst / 1e-12),
        evidence=f"{3 * cases} points, k = 1…19, d = 2, 3, 10: ≤ {worst:.1e} from automatic differentiation of f",
    )


def critical_points(sweep: Sweep) -> Verdict:
    """Evaluate f and ∇f around the three points; then exclude all others, off the axis of w* and on it."""
    slack, flat, degenerate, patches = [], 0.0, 0.0, (2, 3, 4, 12, 64)
    around = net.unit(torch.randn(512, 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64))
    for k in patches:
        points = net.critical_points(_TRUTH, k=k)
        assert points.saddle is not None
        both = torch.stack([points.minimum, points.saddle])
        flat = max(flat, float(net.gradient(both, _TRUTH, k=k).norm(dim=-1).max()))
        curved = net.hessian_eigenvalues(both, _TRUTH, k=k)
        degenerate = max(degenerate, float(curved[1, 1:].abs().max()))
        # From 0, f falls in every direction at a positive rate; from w* it rises; from the saddle it does both.
        slack.append((net.loss(0 * _TRUTH, _TRUTH, k=k) - net.loss(1e-4 * around, _TRUTH, k=k)).min())
        slack.append(curved[0].min())
        saddle = net.loss(points.saddle + 0.1 * around, _TRUTH, k=k) - net.loss(points.saddle, _TRUTH, k=k)
        slack += [saddle.max(), -saddle.min(), net.loss(points.saddle, _TRUTH, k=k)]
    across, gap = _off_axis(patches)
    place = max(_misplaced(k) for k in patches)
    return Verdict(
        where="Lemma 3, 2 (k > 1)",
        claim="for k > 1 f has a local maximum at 0, a unique global minimum at w* and a degenerate saddle at"
        " −(k²−k)/(k²+(π−1)k)·w*",
        printed=check(torch.stack(slack))
        & check(1 - flat / 1e-15)
        & check(1 - degenerate / 1e-15)
        & check(across)
        & check(1 - gap / 1e-9)
        & check(1 - place / 1e-9),
        evidence=f"k = 2, 3, 4, 12, 64: |∇f| ≤ {flat:.0e} at w* and the saddle, whose perpendicular eigenvalues are"
        f" ≤ {degenerate:.0e}. No others: off the axis of w* the part of ∇f across w is (π−θ)sin θ‖w*‖/(kπ) > 0 to"
        f" {gap:.0e}, whatever ‖w‖ is; on each half of the axis ∇f changes its sign once, {place:.0e} from the printed"
        " place",
    )


def critical_points_of_one_patch(sweep: Sweep) -> Verdict:
    """Evaluate the network with one patch, where f has no maximum at 0 and is not smooth there."""
    up = float(net.loss(-1e-3 * _TRUTH, _TRUTH, k=1) - net.loss(0 * _TRUTH, _TRUTH, k=1))
    down = float(net.loss(0 * _TRUTH, _TRUTH, k=1) - net.loss(1e-3 * _TRUTH, _TRUTH, k=1))
    across, gap = _off_axis((1,))
    ahead, behind = _roots_on_axis(1)
    only = len(ahead) == 1 and not behind and abs(ahead[0] - 1) < 1e-9
    lowest = float(net.hessian_eigenvalues(_TRUTH.unsqueeze(0), _TRUTH, k=1).min())
    return Verdict(
        where="Lemma 3, 2 (k = 1)",
        claim="for k = 1, w = 0 is not a local maximum and w* is the only differentiable critical point",
        printed=check(torch.tensor([up, down, across, lowest])) & check(1 - gap / 1e-9) & check(1.0 if only else -1.0),
        evidence=f"from 0, f rises by {up:.1e} towards −w* and falls by {down:.1e} towards w*; off the axis of w* the"
        f" part of ∇f across w is (π−θ)sin θ‖w*‖/π > 0 to {gap:.0e}; on the axis ∇f changes its sign {len(ahead)} time"
        f" towards w*, at w*, and {len(behind)} times towards −w*; least eigenvalue at w* {lowest:.2f}",
    )


def _off_axis(patches: tuple[int, ...]) -> tuple[float, float]:
    """Return the least ratio of ∇f across w to the formula, and their largest relative difference.

    The formula, (π−θ)sin θ‖w*‖/(kπ), does not depend on ‖w‖. It is positive for 0 < θ < π: zeros of ∇f are on the axis.
    """
    theta = torch.linspace(0, pi, 183, dtype=torch.float64)[1:-1]
    across = torch.tensor([0.8, -0.6, 0.0], dtype=torch.float64)
    least, gap = float("inf"), 0.0
    for k in patches:
        for norm in torch.logspace(-3, 2, 41, dtype=torch.float64):
            e = theta.cos().unsqueeze(-1) * _TRUTH + theta.sin().unsqueeze(-1) * across
            slope = net.gradient(norm * e, _TRUTH, k=k)
            measured = net.size(slope - (slope * e).sum(dim=-1, keepdim=True) * e) * k
            formula = (pi - theta) * theta.sin() / pi
            least = min(least, float((measured / formula).min()))
            # The removed part along w grows with ‖w‖, and so does its rounding error.
            gap = max(gap, float(((measured - formula).abs() / (formula * (1 + norm))).max()))
    return least, gap


def _misplaced(k: int) -> float:
    """Return how far the zeros of ∇f on the axis are from w* and the saddle; inf unless each half has exactly one."""
    ahead, behind = _roots_on_axis(k)
    if len(ahead) != 1 or len(behind) != 1:
        return float("inf")
    a, b = net.coefficients(k)
    return max(abs(ahead[0] - 1), abs(behind[0] - float(b / a)))


def _roots_on_axis(k: int) -> tuple[list[float], list[float]]:
    """Return the ‖w‖ at which the slope of f along the axis changes its sign, on the half of w* and on the other."""
    found = []
    for sign in (1.0, -1.0):
        axis = sign * _TRUTH

        def slope(r: Tensor, axis: Tensor = axis) -> Tensor:
            return net.gradient(r.unsqueeze(-1) * axis, _TRUTH, k=k) @ axis

        r = torch.logspace(-6, 3, 2000, dtype=torch.float64)
        changes = (slope(r).sign().diff() != 0).nonzero().flatten()
        low, high = r[changes], r[changes + 1]
        for _ in range(60):
            middle = (low + high) / 2
            left = slope(middle).sign() == slope(low).sign()
            low, high = torch.where(left, middle, low), torch.where(left, high, middle)
        found.append(((low + high) / 2).tolist())
    return found[0], found[1]
