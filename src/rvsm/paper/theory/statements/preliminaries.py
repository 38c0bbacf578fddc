"""Section 3 of the paper: the closed form of the loss, and the relaxation."""

from math import pi

import numpy as np
import torch
from torch import Tensor

from rvsm.paper.theory import network as net
from rvsm.paper.theory.network import Population
from rvsm.paper.theory.penalty_formulas import penalty_values
from rvsm.paper.theory.problems import PENALTIES
from rvsm.paper.theory.sample import monte_carlo, monte_carlo_cross_moment
from rvsm.paper.theory.simulate import walk
from rvsm.paper.theory.sweep import Sweep
from rvsm.paper.theory.trajectory import Setting
from rvsm.paper.theory.verdict import Verdict, check

_LARGEST_Z = 5.0


def lemma_1(sweep: Sweep) -> Verdict:
    """Compare g with a quadrature over the angle, exact to rounding, and with Monte Carlo."""
    theta, v, w = _pairs(41)
    error = (net.cross_moment(v, w) - _quadrature(v, w, theta)).abs().max()
    samples = 100_000 if sweep.quick else 1_000_000
    estimate = monte_carlo_cross_moment(v, w, samples=samples, generator=torch.Generator().manual_seed(1))
    z = ((estimate.value - net.cross_moment(v, w)) / estimate.error.clamp_min(1e-12)).abs()[:-1].max()
    return Verdict(
        where="Lemma 1",
        claim="g(u,v) = (1/2π)‖u‖‖v‖(sin θ + (π−θ)cos θ)",
        printed=check(1 - error / 1e-13) & check(1 - z / _LARGEST_Z),
        evidence=f"{len(v)} pairs: ≤ {error:.1e} from a quadrature; Monte Carlo, {samples:,} samples: |z| ≤ {z:.2f}",
    )


def simploss(sweep: Sweep) -> Verdict:
    """Compare f with the patches' second moments by quadrature, and with the network itself by Monte Carlo."""
    theta, truth, w = _pairs(9)
    truth, w = truth[0], w * torch.linspace(0.3, 2, 9, dtype=torch.float64).unsqueeze(-1)
    samples = 20_000 if sweep.quick else 400_000
    error, z = torch.zeros(()), torch.zeros(())
    for k in (1, 2, 4, 12):
        closed = net.loss(w, truth, k=k)
        r, big = w.norm(dim=-1), truth.norm()
        same = (r**2 + big**2) / 2 - 2 * _quadrature(truth.expand_as(w), w, theta)
        error = torch.maximum(error, (closed - (k * same + (k * k - k) * (r - big) ** 2 / (2 * pi)) / k**2).abs().max())
        estimate = monte_carlo(w, truth, k=k, samples=samples, generator=torch.Generator().manual_seed(k))
        z = torch.maximum(z, ((estimate.value - closed) / estimate.error).abs().max())
    return Verdict(
        where="eq. (5), simploss",
        claim="f(w) = (1/k²)[a(‖w‖²+‖w*‖²) − 2k g(w,w*) − 2b‖w‖‖w*‖], b = (k²−k)/(2π), a = b + k/2",
        printed=check(1 - error / 1e-13) & check(1 - z / _LARGEST_Z),
        evidence=f"k = 1, 2, 4, 12: ≤ {error:.1e} from a quadrature; network of k patches, {samples:,} samples:"
        f" |z| ≤ {z:.2f}",
    )


def thresholding(sweep: Sweep) -> Verdict:
    """Compare each proximal operator with a fine grid of candidates, over the thresholds of the sweep."""
    slack, cases = [], 0
    grid = torch.linspace(0, 2, 1001 if sweep.quick else 8001, dtype=torch.float64).unsqueeze(-1)
    for make in PENALTIES.values():
        for mu in (0.02, 0.11, 0.24, 0.26, 0.64):
            penalty, w = make(mu), torch.linspace(0.001, 1.999, 400, dtype=torch.float64)
            u = penalty.prox(w, 1.0).unsqueeze(-1)
            best = penalty_values([penalty], u) + (u.squeeze(-1) - w) ** 2 / 2
            candidates = penalty_values([penalty], grid) + (grid - w.unsqueeze(-1).unsqueeze(-1)).squeeze(-1) ** 2 / 2
            slack.append((candidates.min(dim=-1).values - best).min())
            cases += len(w)
    return Verdict(
        where="Algorithm 1; Corollary 1.2",
        claim="u = argmin_u ℒ(w,u) is the thresholding of w that belongs to the penalty (ℓ1: S_{λ/β}(w))",
        printed=check(torch.stack(slack), tolerance=1e-12),
        evidence=f"{cases} weights in 15 settings: no candidate of a grid of {len(grid)} beats the shipped operator by"
        f" more than {max(0.0, -float(min(slack))):.1e}",
    )


def moreau(sweep: Sweep) -> Verdict:
    """Compare the second step of the shipped RVSM with a gradient step on f + the Moreau envelope.

    The second step is used because the two orders agree in the first.

    The envelope is minimised over a grid and differentiated numerically, so it does not depend on the operator.
    """
    generator = torch.Generator().manual_seed(3)
    truth = torch.tensor([0.6, -0.48, 0.64, 0.0], dtype=torch.float64)
    start = torch.randn(20 if sweep.quick else 60, 4, generator=generator, dtype=torch.float64)
    worst, kept = 0.0, 0
    for make in PENALTIES.values():
        setting = Setting(make(0.3 * 0.1), k=4, beta=0.1, eta=1.0)
        _, before, after = walk([setting], truth, start, steps=2)
        w = before.w
        slope = (_envelope(setting, w + 1e-3) - _envelope(setting, w - 1e-3)) / 2e-3
        expected = w - setting.eta * (Population(truth, 4.0).evaluate(w).gradient + slope)
        # At a kink of the envelope, where ℓ0 and Tℓ1 jump, there is no gradient to compare with.
        smooth = ((w.abs() - setting.threshold).abs() > 5e-3) & (w.abs() > 5e-3)
        worst = max(worst, float((after.w - expected)[smooth].abs().max()))
        kept += int(smooth.sum())
    return Verdict(
        where="Section 1: “regularization of ℓ0 via its Moreau envelope”",
        claim="in the proof's order RVSM is gradient descent on f(w) + min_u [λP(u) + (β/2)‖w−u‖²]",
        reading=True,
        printed=check(1 - worst / 1e-5),
        evidence=f"{kept} weights of ℓ1, ℓ0 and Tℓ1: a step of the shipped class and a gradient step differ by"
        f" ≤ {worst:.1e}, the error of the numerical envelope",
    )


def _envelope(setting: Setting, w: Tensor) -> Tensor:
    """Return min_u λP(u) + (β/2)(w − u)² for each weight: the best of a grid, then of a finer one around it."""
    points = torch.linspace(0, 1, 401, dtype=torch.float64)
    x = w.abs().unsqueeze(-1)
    low, high = torch.zeros_like(x), x

    def cost(u: Tensor) -> Tensor:
        return penalty_values([setting.penalty], u.reshape(-1, 1)).view(u.shape) + setting.beta / 2 * (u - x) ** 2

    for _ in range(3):
        u = low + (high - low) * points
        best = u.gather(-1, cost(u).argmin(dim=-1, keepdim=True))
        step = (high - low) / 400
        # Zero is a separate candidate, because the values next to zero cost more than zero.
        low, high = torch.where(best > 0, (best - step).clamp_min(0), 0.0), torch.where(best > 0, best + step, 0.0)
    return cost(best).squeeze(-1)


def _pairs(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return angles from 0 to π and pairs of vectors at these angles."""
    theta = torch.linspace(0, pi, count, dtype=torch.float64)
    v = torch.tensor([1.3, 0.0], dtype=torch.float64).expand(count, -1)
    return theta, v, 0.7 * torch.stack([theta.cos(), theta.sin()], dim=-1)


def _quadrature(v: Tensor, w: Tensor, theta: Tensor) -> Tensor:
    """Return g by integrating over the angle where both neurons are active; the radius integrates to 2."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    width = (pi - theta).unsqueeze(-1)
    phi = theta.unsqueeze(-1) - pi / 2 + width * (torch.from_numpy(nodes) + 1) / 2
    inner = (phi.cos() * (phi - theta.unsqueeze(-1)).cos() * torch.from_numpy(weights)).sum(dim=-1)
    return net.size(v) * net.size(w) / pi * width.squeeze(-1) / 2 * inner
