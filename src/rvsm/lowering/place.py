"""Where an operation stands in the network: what a translation knows beside its arguments."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rvsm.lowering.views import Size


@dataclass(frozen=True)
class Place:
    """The name of the module that an operation belongs to, and the sizes and the type of its result."""

    name: str
    sizes: Sequence[Size]
    dtype: torch.dtype

    def dim(self, dim: int, rank: int | None = None) -> int:
        """Return a dimension of the result, or of a tensor of another rank, counted from the front."""
        return dim % (len(self.sizes) if rank is None else rank)
