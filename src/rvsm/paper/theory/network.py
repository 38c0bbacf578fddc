"""The one-layer no-overlap ReLU network of the paper: its loss, gradient and curvature in closed form.

The network averages one ReLU neuron over k disjoint patches x_i of a standard normal input,
L(x; w) = (1/k) Σ_i relu(w·x_i), and f(w) = E[(L(x; w) − L(x; w*))²]. With r = ‖w‖, W = ‖w*‖, θ the angle between the
two, A = k + (k² − k)/π and B = (k² − k)/π, all quantities below are functions of r and θ.

Everything is batched over the rows of w and computed in float64.
"""

from dataclasses import dataclass, field
from math import pi
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

Patches = float | Tensor
"""The number k of patches: one number, or one for each row of w."""


class Geometry(NamedTuple):
    """The position of w: its norm r, its angle θ to w*, the norm W of w*, and A and B for the number of patches."""

    norm: Tensor
    theta: Tensor
    truth_norm: Tensor
    a: Tensor
    b: Tensor
    k: Tensor


def angle(v: Tensor, w: Tensor) -> Tensor:
    """Return the angle between the rows of v and w as 2·atan2(‖e₁ − e₂‖, ‖e₁ + e₂‖) of their unit vectors.

    The arc cosine of the inner product would return 0 for all angles below 1e-8.

    >>> v, w = torch.tensor([[1.0, 0.0], [1.0, 1e-9]], dtype=torch.float64)
    >>> angle(v, w).item()
    1e-09
    """
    v, w = _rows(v, "v"), _rows(w, "w")
    _require_same_dimension(v, w)
    return _between(v / _norm(v, "v").unsqueeze(-1), w / _norm(w, "w").unsqueeze(-1))


def size(w: Tensor) -> Tensor:
    """Return the norm of each row.

    >>> size(torch.tensor([3.0, 4.0])).item()
    5.0
    """
    norms: Tensor = torch.linalg.vector_norm(w, dim=-1)
    return norms


def unit(w: Tensor) -> Tensor:
    """Return each row divided by its norm.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    return w / size(w).unsqueeze(-1)


def cross_moment(v: Tensor, w: Tensor) -> Tensor:
    """Return g(v, w) = E[relu(v·x)relu(w·x)] for a standard normal x (Dinh & Xin, Lemma 1).

    >>> cross_moment(torch.tensor([2.0, 0.0]), torch.tensor([2.0, 0.0])).item()
    2.0
    """
    theta = angle(v, w)
    norms = size(v.double()) * size(w.double())
    return norms * (theta.sin() + (pi - theta) * theta.cos()) / (2 * pi)


def coefficients(k: Patches) -> tuple[Tensor, Tensor]:
    """Return A = k + (k² − k)/π and B = (k² − k)/π."""
    patches = _patches(k)
    b = (patches * patches - patches) / pi
    return patches + b, b


def curvature(k: Patches) -> Tensor:
    """Return L⁺ = A/k² ≤ 1, the largest eigenvalue of the Hessian of f at any point.

    f(w') ≤ f(w) + ⟨∇f(w), w' − w⟩ + (L⁺/2)‖w' − w‖² for all w and w'. So L⁺ can replace the paper's L if only
    descent matters.

    >>> curvature(1).item()
    1.0
    """
    return coefficients(k)[0] / _patches(k) ** 2


def geometry(w: Tensor, truth: Tensor, k: Patches) -> Geometry:
    """Return the quantities in the closed forms; raise at w = 0, where f has no gradient."""
    return _Surroundings(truth, k).at(w)


class _Surroundings:
    """The part of the geometry that does not depend on w, so that a simulation computes it once."""

    def __init__(self, truth: Tensor, k: Patches) -> None:
        self.truth, self.k = _rows(truth, "truth"), _patches(k)
        self.norm = _norm(self.truth, "truth")
        self.direction = self.truth / self.norm.unsqueeze(-1)
        self.a, self.b = coefficients(self.k)

    def at(self, w: Tensor) -> Geometry:
        w = _rows(w, "w")
        _require_same_dimension(w, self.truth)
        if self.k.dim() and self.k.shape != w.shape[:-1]:
            raise ValueError(
                f"k must be a number, or one for each row of w (shape {tuple(w.shape[:-1])}), but has shape"
                f" {tuple(self.k.shape)}"
            )
        r = _norm(w, "w")
        return Geometry(r, _between(w / r.unsqueeze(-1), self.direction), self.norm, self.a, self.b, self.k)


def loss(w: Tensor, truth: Tensor, *, k: Patches, at: Geometry | None = None) -> Tensor:
    """Return f(w) for each row of w (Dinh & Xin, eq. simploss).

    Args:
        w: weights, [..., d]; w = 0 is allowed, because f is defined there.
        truth: the ground truth w*, [d] or one for each row.
        k: the number of patches, ≥ 1.
        at: the geometry of w, if it is already known.

    >>> w = torch.tensor([[0.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    >>> [round(f, 6) for f in loss(w, w[1], k=4).tolist()]  # A/(2k²) and 0
    [0.244366, 0.0]

    """
    if at is None:
        w, truth = _rows(w, "w"), _rows(truth, "truth")
        _require_same_dimension(w, truth)
        zero = (w == 0).all(dim=-1)
        at = geometry(torch.where(zero.unsqueeze(-1), truth, w), truth, k)
        at = at._replace(norm=torch.where(zero, 0.0, at.norm))
    r, theta, big, a, b, patches = at
    overlap = patches / pi * (theta.sin() + (pi - theta) * theta.cos()) + b
    return (a * (r * r + big * big) / 2 - r * big * overlap) / patches**2


def gradient(w: Tensor, truth: Tensor, *, k: Patches, at: Geometry | None = None) -> Tensor:
    """Return ∇f(w) for each row of w (Dinh & Xin, eq. gradient).

    >>> truth = torch.tensor([0.8, 0.6], dtype=torch.float64)
    >>> gradient(truth, truth, k=4).abs().max().item() < 1e-15
    True
    """
    w, truth = _rows(w, "w"), _rows(truth, "truth")
    r, theta, big, a, b, patches = geometry(w, truth, k) if at is None else at
    along_w = a - big / r * (patches / pi * theta.sin() + b)
    along_truth = patches / pi * (pi - theta)
    return (along_w.unsqueeze(-1) * w - along_truth.unsqueeze(-1) * truth) / (patches**2).unsqueeze(-1)


def hessian_eigenvalues(w: Tensor, truth: Tensor, *, k: Patches) -> Tensor:
    """Return the three distinct eigenvalues of ∇²f(w), [..., 3].

    Along w: A/k². Across w, in the plane of w and w*: [A − (2k/π)(W/r)sinθ − BW/r]/k². In the d − 2 directions across
    that plane: [A − (k/π)(W/r)sinθ − BW/r]/k².
    """
    r, theta, big, a, b, patches = geometry(w, truth, k)
    bend = patches / pi * (big / r) * theta.sin()
    rest = a - b * big / r
    return torch.stack([a.expand_as(rest), rest - 2 * bend, rest - bend], dim=-1) / (patches**2).unsqueeze(-1)


@dataclass(frozen=True)
class CriticalPoints:
    """The critical points of f, and its local maximum."""

    minimum: Tensor  # w*, the only global minimum
    saddle: Tensor | None  # −(B/A)w*, degenerate; None for k = 1, where it coincides with 0
    maximum: Tensor | None  # 0, a local maximum; None for k = 1, where it is not one


def critical_points(truth: Tensor, *, k: float) -> CriticalPoints:
    """Return the critical points of f (Dinh & Xin, Lemma 3).

    >>> critical_points(torch.tensor([1.0, 0.0]), k=1).saddle is None
    True
    """
    truth = _rows(truth, "truth")
    _norm(truth, "truth")
    require_patches(k)
    a, b = coefficients(k)
    if k == 1:
        return CriticalPoints(minimum=truth, saddle=None, maximum=None)
    return CriticalPoints(minimum=truth, saddle=-(b / a) * truth, maximum=torch.zeros_like(truth))


class Evaluation(NamedTuple):
    """A loss at some rows: f [n], ∇f [n, d], the angle θ to w* [n] and the norm [n]."""

    value: Tensor
    gradient: Tensor
    theta: Tensor
    norm: Tensor


@dataclass(frozen=True)
class Population:
    """The population loss as an object that a simulation can minimise.

    f has no gradient at a row that is zero. If such rows are allowed, it is taken to be 0, as in automatic
    differentiation, where the slope of a ReLU is 0 at 0; f's quadratic upper bound needs this, too. θ is NaN.
    """

    truth: Tensor  # the ground truth of each row, [n, d] or [d]
    k: Patches
    zero_ok: bool = False  # allow rows that are zero
    _surroundings: _Surroundings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_surroundings", _Surroundings(self.truth, self.k))

    def evaluate(self, w: Tensor) -> Evaluation:
        """Return f, ∇f, θ and ‖w‖ at each row of w."""
        zero = (w == 0).all(dim=-1) if self.zero_ok else None
        if zero is None or not bool(zero.any()):
            at = self._surroundings.at(w)
            value, slope = loss(w, self.truth, k=self.k, at=at), gradient(w, self.truth, k=self.k, at=at)
            return Evaluation(value, slope, at.theta, at.norm)
        some = zero.unsqueeze(-1)
        filled = torch.where(some, self.truth, w)  # any direction will do, since ‖w‖ = 0 multiplies it
        at = self._surroundings.at(filled)
        norm = torch.where(zero, 0.0, at.norm)
        slope = torch.where(some, 0.0, gradient(filled, self.truth, k=self.k, at=at))
        value = loss(w, self.truth, k=self.k, at=at._replace(norm=norm))
        return Evaluation(value, slope, torch.where(zero, torch.nan, at.theta), norm)


def _between(e1: Tensor, e2: Tensor) -> Tensor:
    return 2 * torch.atan2(size(e1 - e2), size(e1 + e2))


def require_patches(k: float) -> None:
    """Raise unless k is one number of patches."""
    if isinstance(k, Tensor):
        raise TypeError(f"k must be one number of patches here but is {k!r}; make one setting for each k")
    _patches(k)


def _patches(k: Patches) -> Tensor:
    if isinstance(k, bool) or not isinstance(k, Real | Tensor):
        raise TypeError(f"k must be a number of patches, such as 4, but is {k!r}; give an int or a float ≥ 1")
    patches = torch.as_tensor(k, dtype=torch.float64)
    if not bool((patches >= 1).all()) or not bool(torch.isfinite(patches).all()):
        raise ValueError(f"k, the number of patches, must be ≥ 1 but is {k}; the network needs at least one patch")
    return patches


def require_rows(w: Tensor, name: str) -> None:
    """Raise unless w is a tensor of one or more vectors."""
    if not isinstance(w, Tensor):
        raise TypeError(f"{name} must be a tensor of weights but is {w!r}; wrap it: torch.tensor(…)")
    if w.dim() == 0 or w.shape[-1] == 0:
        raise ValueError(
            f"{name} must be a tensor of weights [d] or [n, d] but has the shape {tuple(w.shape)}; give d ≥ 1 entries"
        )


def _rows(w: Tensor, name: str) -> Tensor:
    require_rows(w, name)
    return w.double()


def _norm(w: Tensor, name: str) -> Tensor:
    norm = size(w)
    if not bool(norm.isfinite().all()):
        raise ValueError(
            f"{name} must be finite but its norm is {float(norm.max())}; the run that made it has diverged"
        )
    if not bool((norm > 0).all()):
        raise ValueError(f"{name} must not be zero: it has no direction there, and f no gradient; start elsewhere")
    return norm


def _require_same_dimension(v: Tensor, w: Tensor) -> None:
    if v.shape[-1] != w.shape[-1]:
        raise ValueError(
            f"both vectors need the same dimension but have {v.shape[-1]} and {w.shape[-1]}; give w and the truth"
            " the same d"
        )
    if v.dim() > 1 and w.dim() > 1 and v.shape != w.shape:
        raise ValueError(f"the rows do not match: {tuple(v.shape)} and {tuple(w.shape)}; give one truth, or one a row")
