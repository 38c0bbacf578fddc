"""Operations that read a map as a tensor with more axes than three: its numbers in order, with strides.

A stride counts the numbers of one image, in the order channels, rows, columns. Everything that a file says about places
is checked against the size of the map.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rvsm.runtime.plan.operation import Operation, Shape

MAX_AXES = 6
MAX_ROWS = 1 << 24  # of a table: larger numbers are not exact in float32


@dataclass(frozen=True, kw_only=True)
class Rearrangement(Operation):
    """The numbers at ``offset`` + Σ index · stride, over all indices below ``sizes``, as a map of shape ``result``.

    Transposed, sliced, repeated (stride 0) and reshaped tensors are rearrangements.
    """

    kind = "rearrangement"
    since = 4
    source: int
    offset: int = 0
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    result: tuple[int, ...]

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the shape of the result."""
        check_places(self.offset, self.sizes, self.strides, sources[0])
        if len(self.result) != 3 or math.prod(self.result) != math.prod(self.sizes):
            raise ValueError(f"{math.prod(self.sizes)} numbers cannot have the shape {self.result}")
        return self.result[0], self.result[1], self.result[2]

    @property
    def is_range(self) -> bool:
        """Whether the result is a range of the source, in its order."""
        return all(
            stride == math.prod(self.sizes[k + 1 :]) or size == 1
            for k, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True))
        )

    @property
    def label(self) -> str:
        """Whether the numbers move."""
        return "view" if self.is_range else self.kind


@dataclass(frozen=True, kw_only=True)
class Contraction(Operation):
    """scale · Σₖ a[o, p, m, k] · b[o, p, k, n]: products of matrices, over two outer axes; ``sizes`` are o, p, m, n, k.

    The strides of a are those of o, p, m, k, and those of b of o, p, k; the numbers of b along n are neighbours. The
    result has o · p · m channels of n positions.
    """

    kind = "contraction"
    since = 4
    takes = ("a", "b")
    a: int
    b: int
    sizes: tuple[int, ...]
    a_strides: tuple[int, ...]
    b_strides: tuple[int, ...]
    a_offset: int = 0
    b_offset: int = 0
    scale: float = 1.0

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the channels o · p · m and n positions."""
        if len(self.sizes) != 5 or len(self.a_strides) != 4 or len(self.b_strides) != 3:
            raise ValueError("a contraction has five sizes, four strides of a, and three strides of b")
        o, p, m, n, k = self.sizes
        check_places(self.a_offset, (o, p, m, k), self.a_strides, sources[0])
        check_places(self.b_offset, (o, p, k, n), (*self.b_strides, 1), sources[1])
        return o * p * m, 1, n

    @property
    def label(self) -> str:
        """The sizes of the matrices."""
        o, p, m, n, k = self.sizes
        return f"{o * p} × {m}×{k}×{n} product"


@dataclass(frozen=True, kw_only=True)
class Normalization(Operation):
    """weight · (x − mean) / √(variance + epsilon) + bias, over each of ``groups`` of channels at every position.

    Without ``centered``, the mean is not subtracted: x / √(mean of squares + epsilon).
    """

    kind = "normalization"
    since = 4
    source: int
    groups: int = 1
    epsilon: float
    centered: bool = True

    def weight_shape(self, sources: Sequence[Shape]) -> tuple[int, ...]:
        """Return the number of channels in a group."""
        return (sources[0][0] // self.groups,)

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the shape of the source."""
        check_groups(self.groups, sources[0])
        if not 0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon must be a positive number but is {self.epsilon}")
        return sources[0]


@dataclass(frozen=True, kw_only=True)
class Constant(Operation):
    """A map that is the same for all images: its weights."""

    kind = "constant"
    since = 4
    takes = ()
    result: tuple[int, ...]

    def weight_shape(self, sources: Sequence[Shape]) -> tuple[int, ...]:
        """Return its own shape."""
        return self.result

    def bias_size(self, weights: tuple[int, ...]) -> int:
        """Return 0: it has no bias."""
        return 0

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return its own shape."""
        if len(self.result) != 3:
            raise ValueError(f"a constant must have three sizes but has {self.result}")
        return self.result[0], self.result[1], self.result[2]


@dataclass(frozen=True, kw_only=True)
class Embedding(Operation):
    """Row x of a table, its weights, for each number x of the source; its features become channels.

    A number that is not one of the rows is an error of the call, and nothing is read.
    """

    kind = "embedding"
    since = 4
    source: int
    rows: int
    features: int

    def weight_shape(self, sources: Sequence[Shape]) -> tuple[int, ...]:
        """Return rows and features."""
        return self.rows, self.features

    def bias_size(self, weights: tuple[int, ...]) -> int:
        """Return 0: it has no bias."""
        return 0

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the features as channels, and a position for each number."""
        if not 1 <= self.rows <= MAX_ROWS or self.features < 1:
            raise ValueError(f"a table must have 1 to {MAX_ROWS} rows of features but has {self.rows}×{self.features}")
        return self.features, 1, math.prod(sources[0])


def check_places(offset: int, sizes: Sequence[int], strides: Sequence[int], source: Shape) -> None:
    """Raise ValueError if an index leads out of a map, or if there are too many axes."""
    if not 1 <= len(sizes) <= MAX_AXES or len(sizes) != len(strides):
        raise ValueError(
            f"it must have 1 to {MAX_AXES} axes, with a stride for each, but has {len(sizes)} sizes and"
            f" {len(strides)} strides"
        )
    if min(sizes) < 1 or min(strides) < 0 or offset < 0:
        raise ValueError(f"sizes must be positive, and strides at least 0, but are {sizes} and {strides}")
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if last >= math.prod(source):
        raise ValueError(f"it needs number {last} of a map of {math.prod(source)} numbers")


def check_groups(groups: int, source: Shape) -> None:
    """Raise ValueError if the channels cannot be divided into ``groups``."""
    if groups < 1 or source[0] % groups:
        raise ValueError(f"{source[0]} channels cannot be divided into {groups} groups")
