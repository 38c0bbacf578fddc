"""Lemmas 2 to 5: the gradient, its Lipschitz constants and the strip of norms."""

from math import pi

import torch
from torch import Tensor

from rvsm.penalties import L1
from rvsm.theory import network as net
from rvsm.theory.simulate import simulate
from rvsm.theory.sweep import Sweep, column
from rvsm.theory.trajectory import Setting
from rvsm.theory.verdict import Verdict, check, judge


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
    return judge(
        "gradient",
        where="Lemma 3, eq. (13), gradient",
        claim="∇f(w) = (1/k²)[(k + (k²−k)/π − (k/π)(‖w*‖/‖w‖)sin θ − ((k²−k)/π)‖w*‖/‖w‖)w − (k/π)(π−θ)w*]",
        printed=check(1 - worst / 1e-12),
        evidence=f"{3 * cases} points, k = 1…19, d = 2, 3, 10: ≤ {worst:.1e} from automatic differentiation of f",
    )


def critical_points(sweep: Sweep) -> Verdict:
    """Look at f and ∇f around the three points, and for other zeros of ∇f everywhere else."""
    truth = torch.tensor([0.36, 0.48, 0.8], dtype=torch.float64)
    slack, flat, elsewhere, degenerate = [], 0.0, float("inf"), 0.0
    for k in (2, 3, 4, 12, 64):
        points = net.critical_points(truth, k=k)
        assert points.saddle is not None
        both = torch.stack([points.minimum, points.saddle])
        flat = max(flat, float(net.gradient(both, truth, k=k).norm(dim=-1).max()))
        curved = net.hessian_eigenvalues(both, truth, k=k)
        degenerate = max(degenerate, float(curved[1, 1:].abs().max()))
        # Near 0 and in every direction f falls at a positive rate; at w* it rises; at the saddle it does both.
        around = _sphere(512)
        slack.append((net.loss(0 * truth, truth, k=k) - net.loss(1e-4 * around, truth, k=k)).min())
        slack.append(curved[0].min())
        saddle = net.loss(points.saddle + 0.1 * around, truth, k=k) - net.loss(points.saddle, truth, k=k)
        slack += [saddle.max(), -saddle.min()]
        elsewhere = min(elsewhere, _least_gradient(k, [points.minimum, points.saddle], truth))
    return judge(
        "critical-points",
        where="Lemma 3, 2 (k > 1)",
        claim="for k > 1 f has a local maximum at 0, a unique global minimum at w* and a degenerate saddle at"
        " −(k²−k)/(k²+(π−1)k)·w*",
        printed=check(torch.stack(slack)) & check(1 - flat / 1e-15) & check(1 - degenerate / 1e-15) & check(elsewhere),
        evidence=f"k = 2, 3, 4, 12, 64: |∇f| ≤ {flat:.0e} at w* and the saddle, whose perpendicular eigenvalues are"
        f" ≤ {degenerate:.0e}; |∇f| ≥ {elsewhere:.1e} farther than 0.05 from them and from 0",
    )


def critical_points_of_one_patch(sweep: Sweep) -> Verdict:
    """Look at the network with one patch, where 0 is neither a maximum nor smooth."""
    truth = torch.tensor([0.36, 0.48, 0.8], dtype=torch.float64)
    up = float(net.loss(-1e-3 * truth, truth, k=1) - net.loss(0 * truth, truth, k=1))
    down = float(net.loss(0 * truth, truth, k=1) - net.loss(1e-3 * truth, truth, k=1))
    elsewhere = _least_gradient(1, [truth], truth)
    lowest = float(net.hessian_eigenvalues(truth.unsqueeze(0), truth, k=1).min())
    return judge(
        "critical-points-k1",
        where="Lemma 3, 2 (k = 1)",
        claim="for k = 1, w = 0 is not a local maximum and w* is the only differentiable critical point",
        printed=check(torch.tensor([up, down, elsewhere, lowest])),
        evidence=f"from 0, f rises by {up:.1e} towards −w* and falls by {down:.1e} towards w*; |∇f| ≥ {elsewhere:.2f}"
        f" farther than 0.05 from w* and 0; least eigenvalue at w* {lowest:.2f}",
    )


def lipschitz_coplanar(sweep: Sweep) -> Verdict:
    """Sample pairs in the half-plane, near and far from each other."""
    ratio, bound, sharp = _lipschitz_pairs(2, 4000 if sweep.quick else 60_000, half_plane=True)
    return judge(
        "lipschitz-coplanar",
        where="Lemma 4",
        claim="‖∇f(w₁)−∇f(w₂)‖ ≤ (1+3‖w*‖/M)‖w₁−w₂‖ for w₁, w₂, w* in a half-plane with norms ≥ M",
        printed=check(1 - ratio / bound),
        evidence=f"{len(ratio)} pairs: at most {float((ratio / bound).max()):.2f} of the constant, which is loose;"
        f" {float((ratio / sharp).max()):.3f} of L⁺ + (W/M)(B/k² + 1/k)",
    )


def lipschitz_everywhere(sweep: Sweep) -> Verdict:
    """Sample pairs anywhere, for the sharper constant that needs no common plane."""
    ratio, _, sharp = _lipschitz_pairs(5, 4000 if sweep.quick else 60_000, half_plane=False)
    return judge(
        "lipschitz-everywhere",
        where="Lemma 4, sharpened",
        claim="‖∇f(w₁)−∇f(w₂)‖ ≤ (L⁺ + (‖w*‖/M)(B/k²+1/k))‖w₁−w₂‖ for all w₁, w₂ with norms ≥ M",
        printed=check(1 - ratio / sharp),
        evidence=f"{len(ratio)} pairs in 5 dimensions: at most {float((ratio / sharp).max()):.3f} of the constant",
    )


def lipschitz_iterates(sweep: Sweep) -> Verdict:
    """Compare the quotients along all runs with the constant that belongs to their smallest norm."""
    runs = sweep.proof
    k, least = column(runs, "k"), column(runs, "norm_min")
    _, b = net.coefficients(k)
    bound = net.curvature(k) + (b / k**2 + 1 / k) / least
    ratio = column(runs, "lipschitz")
    return judge(
        "lipschitz-iterates",
        where="Lemma 2",
        claim="a global L exists with ‖∇f(wᵗ)−∇f(wᵗ⁺¹)‖ ≤ L‖wᵗ−wᵗ⁺¹‖ for all t",
        printed=check(1 - ratio / bound),
        evidence=f"{len(ratio)} runs: quotients ≤ {float(ratio.max()):.3f}, at most {float((ratio / bound).max()):.3f}"
        f" of L⁺ + (W/M)(B/k²+1/k) with M the run's smallest norm (≥ {float(least.min()):.3f})",
    )


def closed_strip(sweep: Sweep) -> Verdict:
    """Run one patch from −w*, and many patches with a fixed β; then check the corrected bounds on the sweep."""
    axis = torch.tensor([1.0, 0.0], dtype=torch.float64)
    one = simulate(Setting(L1(lam=0.01), k=1, beta=0.1, eta=0.5), axis, -axis, steps=60)
    away = torch.tensor(pi - 0.3, dtype=torch.float64)
    sinking = simulate(
        Setting(L1(lam=0.05), k=2, beta=0.05, eta=1.0),
        axis,
        0.9 * torch.stack([away.cos(), away.sin()]),
        steps=40,
    )
    many = [Setting(L1(lam=0.2), k=k, beta=0.1, eta=1.0) for k in (16, 64, 256)]
    widths = 1 - simulate(many, axis, axis, steps=300, every=300).norm[-1, :, 0]
    runs = sweep.proof
    norm, k, beta = column(runs, "norm"), column(runs, "k"), column(runs, "beta")
    a, b = net.coefficients(k)
    low = norm - b / (a + beta * k**2)
    return judge(
        "closed-strip",
        where="Lemma 5",
        claim="for k ≥ 1, ‖wᵗ‖ ∈ [‖w*‖−M_k, ‖w*‖+M_k] for all t ≥ T, with M_k < ‖w*‖ and M_k → 0 as k → ∞",
        # An M_k below ‖w*‖ leaves a norm, and M_k → 0 a smaller strip for more patches.
        printed=check(one.norm[-1] - 1e-3) & check(widths[0] / 2 - widths[-1]),
        evidence=f"k = 1 from −w*: the norm falls to {float(one.norm[-1]):.0e} in 60 steps; k = 2 from θ = π−0.3:"
        f" .9 → {float(sinking.norm[1]):.2f} → {float(sinking.norm[2]):.2f}, though below ‖w*‖;"
        f" β = .1: M_k = {widths[0]:.3f}, {widths[1]:.3f}, {widths[2]:.3f} for k = 16, 64, 256."
        f" Corrected, {len(norm)} runs: ‖w̄‖ ≥ lower bound + {float(low.min()):.3f}, ‖w̄‖ ≤ 1 +"
        f" {float(norm.max()) - 1:.0e}",
        correction="for k ≥ 2: liminf ‖wᵗ‖ ≥ ‖w*‖·B/(A+βk²) and limsup ‖wᵗ‖ ≤ ‖w*‖; the strip shrinks with k only if"
        " β = O(1/k)",
        corrected=check(low) & check(1 - norm, tolerance=1e-9),
        counterexample={
            "k": 1, "beta": 0.1, "lam": 0.01, "eta": 0.5, "truth": [1.0, 0.0], "start": [-1.0, 0.0],
            "norms": [float(r) for r in one.norm[[0, 1, 2, 10, 60], 0, 0]],
        },
    )  # fmt: skip


def _lipschitz_pairs(d: int, count: int, *, half_plane: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return quotients of pairs, the paper's constant and the sharp one."""
    generator = torch.Generator().manual_seed(4)
    truth = torch.zeros(d, dtype=torch.float64)
    truth[0] = 1.0
    m = torch.tensor([0.05, 0.3, 1.0], dtype=torch.float64)[torch.randint(3, (count,), generator=generator)]
    k = torch.tensor([1.0, 2.0, 4.0, 12.0], dtype=torch.float64)[torch.randint(4, (count,), generator=generator)]

    def point(near: Tensor | None) -> Tensor:
        v = torch.randn(count, d, generator=generator, dtype=torch.float64)
        if near is not None:
            size = 10.0 ** (-4 * torch.rand(count, 1, generator=generator, dtype=torch.float64))
            v = near / near.norm(dim=-1, keepdim=True) + size * v
        if half_plane:
            v[:, 1] = v[:, 1].abs()
        r = m * (1 + torch.rand(count, generator=generator, dtype=torch.float64) ** 8)
        return net.unit(v) * r.unsqueeze(-1)

    first = point(None)
    second = point(first)
    ratio = (net.gradient(first, truth, k=k) - net.gradient(second, truth, k=k)).norm(dim=-1)
    ratio = ratio / (first - second).norm(dim=-1)
    _, b = net.coefficients(k)
    return ratio, 1 + 3 / m, net.curvature(k) + (b / k**2 + 1 / k) / m


def _least_gradient(k: int, points: list[Tensor], truth: Tensor) -> float:
    """Return the least ‖∇f‖ over the half-plane, farther than 0.05 from the points and from 0."""
    r, theta = torch.meshgrid(
        torch.linspace(0.05, 3, 120, dtype=torch.float64),
        torch.linspace(0, pi, 181, dtype=torch.float64),
        indexing="ij",
    )
    across = torch.tensor([0.8, -0.6, 0.0], dtype=torch.float64)
    w = (r * theta.cos()).reshape(-1, 1) * truth + (r * theta.sin()).reshape(-1, 1) * across
    far = torch.stack([(w - point).norm(dim=-1) >= 0.05 for point in points]).all(dim=0)
    return float(net.gradient(w[far], truth, k=k).norm(dim=-1).min())


def _sphere(count: int) -> Tensor:
    v = torch.randn(count, 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    return net.unit(v)
