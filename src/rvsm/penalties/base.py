"""The interface of every penalty: a cost λP(u) and its proximal operator."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from math import isfinite
from numbers import Real
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Penalty(ABC):
    """A separable sparsity penalty λ·ΣP(|u_i|); the penalty stores λ, and the method supplies the step.

    The proximal operator is prox(w, step) = argmin_u λP(u) + ‖u − w‖²/(2·step). RVSM calls it with step 1/β, which is
    10 to 100 in practice, so every regime of the formula matters, not only the small steps of textbooks.

    Args:
        lam: the weight λ of the penalty.

    """

    lam: float

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, require_positive(field.name, getattr(self, field.name)))

    @abstractmethod
    def value(self, u: Tensor) -> Tensor:
        """Return λP(u), summed over all entries, as a 0-d tensor."""

    @abstractmethod
    def prox(self, w: Tensor, step: float) -> Tensor:
        """Return argmin_u λP(u) + ‖u − w‖²/(2·step), entry by entry; a tie with zero gives zero."""

    @abstractmethod
    def threshold(self, step: float) -> float:
        """Return the largest |w| that ``prox(w, step)`` maps to zero."""

    @abstractmethod
    def with_threshold(self, t: float, step: float) -> Self:
        """Return this penalty with the λ for which ``threshold(step)`` is ``t``."""


def require_positive(name: str, value: float | None) -> float:
    """Return a positive finite number as a Python float (NumPy's repr in a saved state differs), or raise."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number > 0 but is {value!r}")
    if not (isfinite(value) and value > 0):
        raise ValueError(f"{name} must be > 0 and finite but is {value}")
    return float(value)


def full_precision(w: Tensor) -> Tensor:
    """Return ``w``, converted to float32 if its precision is lower; raise if it is not floating-point."""
    if not w.is_floating_point():
        kind = str(w.dtype).removeprefix("torch.")
        raise TypeError(f"a penalty needs real floating-point weights but this tensor is {kind}; convert it first")
    return w if w.dtype in (torch.float32, torch.float64) else w.float()


def shrink(w: Tensor, threshold: float, above: Callable[[Tensor], Tensor]) -> Tensor:
    """Return zero where |w| ≤ threshold and sgn(w)·above(|w|) elsewhere; NaN stays NaN."""
    x = full_precision(w).abs()
    return torch.where(x <= threshold, 0.0, above(x)).copysign(w).to(w.dtype)
