"""Apply any penalty to groups of weights instead of single weights."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from rvsm.groups import Element, Grouping
from rvsm.penalties.base import Penalty, full_precision


@dataclass(frozen=True)
class Grouped:
    """A penalty on the magnitude of each group, with the same four operations as the penalty itself.

    A group with magnitude m_g (its norm or root mean square; see `rvsm.groups`) is scaled by prox(m_g)/m_g. This is the
    exact proximal operator, because the penalty of a group depends only on its norm.

    >>> from rvsm import Filter, L0
    >>> w = torch.tensor([[0.3, 0.4], [0.1, -0.1]])
    >>> Grouped(L0(lam=0.02), Filter(weighted=False)).prox(w, step=1.0)
    tensor([[0.3000, 0.4000],
            [0.0000, -0.0000]])
    """

    penalty: Penalty
    by: Grouping

    @property
    def lam(self) -> float:
        """The λ of the penalty."""
        return self.penalty.lam

    def value(self, u: Tensor) -> Tensor:
        """Return Σ_g size_g·λP(rms_g) if the groups are weighted, otherwise Σ_g λP(‖u_g‖)."""
        u = full_precision(u)
        return self.value_at(self.by.magnitudes(u), self.by.sizes(u))

    def value_at(self, magnitudes: Tensor, sizes: Tensor) -> Tensor:
        """Return the same value for groups with these magnitudes and sizes."""
        if isinstance(self.by, Element) or not self.by.weighted:
            return self.penalty.value(magnitudes)
        if sizes.numel() == 1:
            return sizes.to(magnitudes).reshape(()) * self.penalty.value(magnitudes)
        counts = sizes.to(magnitudes).expand_as(magnitudes)
        # Few sizes occur: the last block of a layer may be smaller, and channels may span different layers.
        total = torch.zeros((), dtype=magnitudes.dtype, device=magnitudes.device)
        for size in torch.unique(counts):
            total = total + size * self.penalty.value(magnitudes[counts == size])  # not in place, for torch.vmap
        return total

    def prox(self, w: Tensor, step: float, magnitudes: Tensor | None = None) -> Tensor:
        """Scale each group as its magnitude is scaled; a group of zeros stays zero.

        If groups also have parts in other tensors, ``magnitudes`` are those of the whole groups.
        """
        if isinstance(self.by, Element):
            return self.penalty.prox(w, step)
        magnitudes = self.by.magnitudes(full_precision(w)) if magnitudes is None else magnitudes
        scale = self.penalty.prox(magnitudes, step) / magnitudes.where(magnitudes != 0, 1.0)
        return (w * self.by.spread(scale, w)).to(w.dtype)

    def threshold(self, step: float) -> float:
        """Return the largest magnitude for which a group becomes zero."""
        return self.penalty.threshold(step)

    def with_threshold(self, t: float, step: float) -> Self:
        """Return this penalty with the λ for which the threshold is ``t``."""
        return replace(self, penalty=self.penalty.with_threshold(t, step))
