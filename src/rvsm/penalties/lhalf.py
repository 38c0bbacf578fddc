"""The ℓ½ penalty: the sum of square roots of magnitudes."""

from dataclasses import dataclass, replace
from math import cbrt, pi
from typing import Self

from torch import Tensor

from rvsm.penalties.base import Penalty, full_precision, shrink


@dataclass(frozen=True)
class LHalf(Penalty):
    """λ·Σ√|u_i|, whose proximal operator is half thresholding.

    With μ = λ·step, a weight above t = (3/2)μ^(2/3) becomes ⅔|w|(1 + cos(2π/3 − ⅔φ)), where cos φ =
    (μ/4)(|w|/3)^(−3/2); at t it jumps from 0 to ⅔t.

    >>> import torch
    >>> LHalf(lam=0.2).prox(torch.tensor([-1.0, 0.5, 0.1]), step=1.0)
    tensor([-0.8943,  0.0000,  0.0000])

    Reference: Xu, Chang, Xu & Zhang, "L1/2 regularization: a thresholding representation theory", 2012.
    """

    def value(self, u: Tensor) -> Tensor:
        """Return λ·Σ√|u|."""
        return self.lam * full_precision(u).abs().sqrt().sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Apply half thresholding."""
        scale = 3 * cbrt(self.lam * step / 4) ** 2

        def survivors(x: Tensor) -> Tensor:
            phi = ((x / scale) ** -1.5).arccos()  # the ratio first: the power of a tiny x alone overflows
            return 2 / 3 * x * (1 + (2 * pi / 3 - 2 / 3 * phi).cos())

        return shrink(w, self.threshold(step), survivors)

    def threshold(self, step: float) -> float:
        """Return (3/2)(λ·step)^(2/3)."""
        return 1.5 * cbrt(self.lam * step) ** 2

    def with_threshold(self, t: float, step: float) -> Self:
        """Set λ = (2t/3)^(3/2)/step."""
        return replace(self, lam=(2 * t / 3) ** 1.5 / step)
