"""Weights as they are stored: one bit for each, and the values of those that are not zero."""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Weights:
    """A tensor of which only the non-zero values are kept.

    >>> w = Weights.of(np.array([[0.0, 2.0], [3.0, 0.0]], dtype=np.float32))
    >>> w.values.tolist(), w.bits.tolist(), w.sparsity
    ([2.0, 3.0], [96], 0.5)
    >>> w.dense().tolist()
    [[0.0, 2.0], [3.0, 0.0]]
    """

    shape: tuple[int, ...]
    bits: NDArray[np.uint8]
    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        count = prod(self.shape)
        if self.bits.dtype != np.uint8 or self.bits.shape != (-(-count // 8),):
            raise ValueError(f"a mask of {-(-count // 8)} bytes is expected for {count} weights, not {self.bits.shape}")
        if self.values.dtype != np.float32 or self.values.ndim != 1:
            raise ValueError("the values must be a row of float32")
        ones = int(np.bitwise_count(self.bits).sum())
        if count % 8 and int(self.bits[-1]) & (0xFF >> count % 8):
            raise ValueError("the mask has bits set beyond its last weight")
        if ones != len(self.values):
            raise ValueError(f"the mask has {ones} bits set but there are {len(self.values)} values")

    @classmethod
    def of(cls, dense: NDArray[np.float32]) -> "Weights":
        """Return the sparse form of ``dense``."""
        mask = dense != 0
        return cls(dense.shape, np.packbits(mask), np.ascontiguousarray(dense[mask], dtype=np.float32))

    def dense(self) -> NDArray[np.float32]:
        """Return all weights."""
        count = prod(self.shape)
        full = np.zeros(count, dtype=np.float32)
        full[np.unpackbits(self.bits, count=count).view(np.bool_)] = self.values
        return full.reshape(self.shape)

    @property
    def sparsity(self) -> float:
        """The share of zeros."""
        return 1.0 - len(self.values) / max(1, prod(self.shape))
