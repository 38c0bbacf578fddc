"""The theorem's bounds, and those that correct it."""

from math import pi, sin, sqrt
from numbers import Real

import torch
from torch import Tensor

from rvsm.paper.theory.network import Patches, coefficients, require_patches


def require_margin(delta: float) -> None:
    """Raise unless δ is an angle between 0 and π."""
    if isinstance(delta, bool) or not isinstance(delta, Real):
        raise TypeError(
            f"delta must be a number between 0 and π but is {delta!r}; it is π minus the largest initial angle"
        )
    if not 0 < delta < pi:
        raise ValueError(f"delta must be between 0 and π but is {delta}; it is π minus the largest initial angle")


def beta_bound(*, k: float, delta: float) -> float:
    """Return the paper's bound on β, δ sin δ/(kπ).

    >>> round(beta_bound(k=2, delta=1.0), 6)
    0.133924
    """
    require_patches(k)
    require_margin(delta)
    return delta * sin(delta) / (k * pi)


def norm_floor(*, k: Patches, beta: Tensor | float) -> Tensor:
    """Return B/(A + βk²): for k ≥ 2, ‖wᵗ‖ does not stay below this fraction of ‖w*‖.

    >>> round(float(norm_floor(k=4, beta=0.05)), 6)
    0.443137
    """
    a, b = coefficients(k)
    return b / (a + beta * torch.as_tensor(k, dtype=torch.float64) ** 2)


def threshold_limit(*, k: Patches, beta: Tensor | float, d: int) -> Tensor:
    """Return A/((A + βk²)√d): if the threshold is below this fraction of ‖w*‖, the limit ū is not empty, for any w*.

    If ū were 0, w̄ would solve ∇f(w) + βw = 0, which gives w̄ = A/(A + βk²)·w*, whose largest entry is above the
    threshold.

    >>> round(float(threshold_limit(k=4, beta=0.05, d=4)), 6)
    0.453595
    """
    a, _ = coefficients(k)
    return a / ((a + beta * torch.as_tensor(k, dtype=torch.float64) ** 2) * sqrt(d))
