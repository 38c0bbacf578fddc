"""What only the laboratory has: the homotopy with a given λ and β, a penalty with a memory, ADMM's exact step in w.

The exact step, argmin_w f(w) + ⟨z, w − u⟩ + (β/2)‖w − u‖², depends on u and z only through p = βu − z. For w = re with
a unit vector e, the objective is (L⁺ + β)r²/2 − r·s(e) + const, where
s(e) = ⟨p, e⟩ + (W/k²)[(k/π)(sinθ + (π−θ)cosθ) + B]. So e maximises s, and r = max(s, 0)/(L⁺ + β). The best e lies
between w* and p, in their plane; only its angle is unknown.
"""

from math import pi
from typing import Any, Self

import torch
from torch import Tensor

from rvsm.paper.theory.network import Patches, angle, coefficients, curvature, size, unit
from rvsm.penalties import Penalty
from rvsm.splitting import RVSM
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import Named

_GRID = 65
_BISECTIONS = 50


class FallingRVSM(RVSM):
    """RVSM with an α that falls linearly from 1 to 0 in the first steps and then stays at 0.

    The shipped ``gradient="moving"`` follows the ramp of a target, which changes λ. Here λ is given, so the limits can
    be compared with those of the same λ at α = 1 and α = 0. Only the course of α differs.
    """

    def __init__(self, named: Named, penalty: Penalty, *, fall: int, **options: Any) -> None:
        super().__init__(named, penalty, gradient="u", **options)
        self.fall = fall

    def temper(self, layer: Layer, lr: float) -> None:
        """Do not limit the gradient: there is no batch norm, and the statements are about the unlimited gradient."""

    @property
    def alpha(self) -> float:
        """1 at w, 0 at u."""
        return max(0.0, 1 - self.step / self.fall) if self.fall else 0.0


class Remembering(Penalty):
    """A penalty that keeps its last proximal point, since one step of a simulation asks for the same up to four times.

    RVSM asks when it pulls w, and when it puts v in the place of w and back; the simulation asks when it records u. On
    networks this does not matter, but here Newton's method for Tℓ1 takes longer than the rest of a step.
    """

    def __init__(self, penalty: Penalty) -> None:
        super().__init__(penalty.lam)
        self._penalty = penalty
        self._last: tuple[Tensor, float, Tensor] | None = None

    def value(self, u: Tensor) -> Tensor:
        """Return the value of the penalty."""
        return self._penalty.value(u)

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Return the proximal operator of the penalty, computed only if w or the step has changed."""
        entries = w.flatten()
        if self._last is None or self._last[1] != step or not torch.equal(self._last[0], entries):
            self._last = entries.clone(), step, self._penalty.prox(entries, step)
        return self._last[2].view(w.shape)

    def threshold(self, step: float) -> float:
        """Return the threshold of the penalty."""
        return self._penalty.threshold(step)

    def with_threshold(self, t: float, step: float) -> Self:
        """Return the penalty with another λ, and without a memory."""
        return type(self)(self._penalty.with_threshold(t, step))


def minimise(p: Tensor, truth: Tensor, *, k: Patches, beta: Tensor | float) -> Tensor:
    """Return argmin_w f(w) − ⟨p, w⟩ + (β/2)‖w‖² for each row of p.

    If the minimiser is 0, which requires p far on the other side of w*, 0 is returned.
    """
    truth = truth.expand_as(p)
    big, axis = size(truth), unit(truth)
    across = _across(p, axis)
    length = size(p)
    k = torch.as_tensor(k, dtype=torch.float64).expand_as(length)
    # If p is zero, the first term is the same in every direction, and w* is best for the second.
    phi = torch.where(length > 0, angle(torch.where((length > 0).unsqueeze(-1), p, axis), axis), 0.0)
    theta = _best_angle(length, phi, big / (k * pi))
    _, b = coefficients(k)
    overlap = k / pi * (theta.sin() + (pi - theta) * theta.cos()) + b
    s = length * (phi - theta).cos() + big / k**2 * overlap
    e = theta.cos().unsqueeze(-1) * axis + theta.sin().unsqueeze(-1) * across
    return (s.clamp_min(0) / (curvature(k) + beta)).unsqueeze(-1) * e


def _best_angle(length: Tensor, phi: Tensor, weight: Tensor) -> Tensor:
    """Return the θ in [0, φ] that maximises ‖p‖cos(φ−θ) + weight·(sinθ + (π−θ)cosθ).

    There may be two local maxima. A grid finds the right one, and bisection of the derivative refines it.
    """
    grid = torch.linspace(0, 1, _GRID, dtype=torch.float64).unsqueeze(-1) * phi
    height = length * (phi - grid).cos() + weight * (grid.sin() + (pi - grid) * grid.cos())
    best = height.argmax(dim=0, keepdim=True)
    low = grid.gather(0, (best - 1).clamp_min(0)).squeeze(0)
    high = grid.gather(0, (best + 1).clamp_max(_GRID - 1)).squeeze(0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        rising = length * (phi - middle).sin() - weight * (pi - middle) * middle.sin() > 0
        low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
    return (low + high) / 2


def _across(p: Tensor, axis: Tensor) -> Tensor:
    """Return the unit vector across w* in the half-plane of p; any one if p lies on the axis."""
    across = p - (p * axis).sum(dim=-1, keepdim=True) * axis
    spare = torch.zeros_like(axis).scatter(-1, axis.abs().argmin(dim=-1, keepdim=True), 1.0)
    spare = spare - (spare * axis).sum(dim=-1, keepdim=True) * axis
    on_axis = (size(across) <= 1e-14 * size(p)).unsqueeze(-1)
    # In one dimension no direction is across w*, and the result is zero.
    across = torch.where(on_axis, spare, across)
    return across / size(across).clamp_min(torch.finfo(torch.float64).tiny).unsqueeze(-1)
