"""The operations of plans. A new operation needs a class, and its name in ``OPERATIONS``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.plan.operation import NOTHING, Activation, Operation, Pair, Shape, check_choice, check_limit
from rvsm.runtime.plan.recurrence import Recurrence
from rvsm.runtime.plan.tensors import Constant, Contraction, Embedding, Normalization, Rearrangement, check_groups

MAX_KERNEL, MAX_STRIDE, MAX_DILATION, MAX_PADDING = 4096, 1024, 1024, 1024


@dataclass(frozen=True, kw_only=True)
class Convolution(Operation):
    """activation(weights * source + bias + residual); a linear layer is a convolution as large as its input."""

    kind = "convolution"
    takes = ("source", "residual")
    source: int
    residual: int | None = None
    channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    activation: Activation = NOTHING

    def weight_shape(self, sources: Sequence[Shape]) -> tuple[int, int, int, int]:
        """Return output channels, input channels of a group, and the kernel's sizes."""
        return self.channels, sources[0][0] // self.groups, *self.kernel

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the channels and sizes of the output."""
        _check_window(self)
        if self.groups < 1 or sources[0][0] % self.groups or self.channels < 1 or self.channels % self.groups:
            raise ValueError(
                f"{sources[0][0]} input and {self.channels} output channels cannot be divided into {self.groups} groups"
            )
        sizes = [
            (size + 2 * self.padding[k] - self.dilation[k] * (self.kernel[k] - 1) - 1) // self.stride[k] + 1
            for k, size in enumerate(sources[0][1:])
        ]
        shape = self.channels, sizes[0], sizes[1]
        if self.residual is not None and sources[1] != shape:
            raise ValueError(f"the residual must have the shape {shape} of the output but has {sources[1]}")
        return shape

    @property
    def label(self) -> str:
        """The kernel's sizes, and the sum and activation that are fused into it."""
        added = " + add" if self.residual is not None else ""
        return _activated(f"{self.kernel[0]}×{self.kernel[1]} {self.kind}{added}", self.activation)


@dataclass(frozen=True, kw_only=True)
class Pooling(Operation):
    """The maximum or the mean of windows."""

    kind = "pooling"
    source: int
    mode: str
    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    ceil: bool = False
    padded: bool = True

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the same sizes as PyTorch; with ``ceil`` the last window must begin inside the map."""
        check_choice("pooling", self.mode, ("max", "mean"))
        _check_window(self)
        sizes = []
        for k, size in enumerate(sources[0][1:]):
            if 2 * self.padding[k] > self.kernel[k]:
                raise ValueError(f"padding must be at most half of the kernel {self.kernel} but is {self.padding}")
            span = size + 2 * self.padding[k] - self.dilation[k] * (self.kernel[k] - 1) - 1
            count = (-(-span // self.stride[k]) if self.ceil else span // self.stride[k]) + 1
            if self.ceil and (count - 1) * self.stride[k] >= size + self.padding[k]:
                count -= 1
            sizes.append(count)
        return sources[0][0], sizes[0], sizes[1]

    def windows(self, size: int, count: int, axis: int) -> NDArray[np.int64]:
        """Return, for each output along an axis, first position, number of positions inside, and the divisor's part."""
        step, reach = self.dilation[axis], self.kernel[axis]
        starts = np.arange(count, dtype=np.int64) * self.stride[axis] - self.padding[axis]
        first = np.maximum(0, -(starts // step))  # the first tap inside; taps are at start + step · tap
        inside = np.maximum(0, np.minimum(reach, -((starts - size) // step)) - first)
        spans = np.minimum(starts + reach, size + self.padding[axis]) - starts
        begin = np.where(inside > 0, starts + step * first, 0)
        return np.stack([begin, inside, spans if self.padded else inside], axis=1)


@dataclass(frozen=True, kw_only=True)
class AdaptivePooling(Operation):
    """The maximum or the mean of windows that divide the map into ``size`` parts."""

    kind = "adaptive pooling"
    source: int
    mode: str
    size: Pair

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the channels of the source and ``size``."""
        check_choice("pooling", self.mode, ("max", "mean"))
        check_limit("size", self.size, 1, MAX_KERNEL)
        return sources[0][0], *self.size

    def windows(self, size: int, count: int, axis: int) -> NDArray[np.int64]:
        """Return, for each output along an axis, first position, number of positions, and the divisor's part."""
        numbers = np.arange(count, dtype=np.int64)
        starts = numbers * size // count
        inside = -(-(numbers + 1) * size // count) - starts
        return np.stack([starts, inside, inside], axis=1)


ARITHMETIC = ("add", "mul", "none", "sub", "div", "max", "min", "equal", "below", "at_most", "slope", "choose")
OLD_ARITHMETIC = ARITHMETIC[:3]


@dataclass(frozen=True, kw_only=True)
class Pointwise(Operation):
    """activation(a ∘ b), where sizes of 1 are broadcast.

    ∘ is an operation of arithmetic; ``none`` takes a alone; ``equal``, ``below`` (a < b) and ``at_most`` (a ≤ b) give 1
    or 0; ``slope`` is a where it is positive and otherwise a · b; ``choose`` is a where c is not 0 and otherwise b.
    """

    kind = "pointwise"
    takes = ("a", "b", "c")
    operation: str
    a: int
    b: int | None = None
    c: int | None = None
    activation: Activation = NOTHING

    def version(self, sources: Sequence[Shape]) -> int:
        """Return 2, if that reader has the operation: it broadcasts single positions of b only."""
        broadcast = any(source not in (sources[0], (sources[0][0], 1, 1)) for source in sources)
        return max(super().version(sources), 4 if broadcast or self.operation not in OLD_ARITHMETIC else 2)

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the shape to which all are broadcast."""
        check_choice("operation", self.operation, ARITHMETIC)
        count = {"none": 1, "choose": 3}.get(self.operation, 2)
        given = [value is not None for value in (self.a, self.b, self.c)]
        if given != [k < count for k in range(3)]:
            raise ValueError(f"{self.operation} with {len(sources)} values")
        shape = tuple(max(sizes) for sizes in zip(*sources, strict=True))
        if any(size not in (1, shape[k]) for source in sources for k, size in enumerate(source)):
            raise ValueError(f"the shapes {' and '.join(map(str, sources))} do not match")
        return shape[0], shape[1], shape[2]

    @property
    def label(self) -> str:
        """The sum or product, and the activation."""
        if self.operation != "none":
            return _activated(self.operation, self.activation)
        return self.kind if self.activation.name == "none" else self.activation.label


@dataclass(frozen=True, kw_only=True)
class Concatenation(Operation):
    """The channels of one value, followed by those of another; in each of ``groups`` of channels."""

    kind = "concatenation"
    takes = ("parts",)
    parts: tuple[int, ...]
    groups: int = 1

    def version(self, sources: Sequence[Shape]) -> int:
        """Return 2, which has no groups."""
        return 2 if self.groups == 1 else 4

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the sum of the channels."""
        if not sources or any(shape[1:] != sources[0][1:] for shape in sources):
            raise ValueError(f"the shapes {list(sources)} cannot be concatenated")
        for source in sources:
            check_groups(self.groups, source)
        return sum(shape[0] for shape in sources), *sources[0][1:]


@dataclass(frozen=True, kw_only=True)
class Flattening(Operation):
    """All channels, rows and columns as one row of features."""

    kind = "flattening"
    source: int

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the total number of entries as channels."""
        return math.prod(sources[0]), 1, 1


@dataclass(frozen=True, kw_only=True)
class Softmax(Operation):
    """exp(x) / Σ exp(x), summed over the channels of a position, or of each of ``groups`` of channels.

    With ``log``, its logarithm. With ``masked``, numbers that are all −∞ give zeros instead of NaN.
    """

    kind = "softmax"
    since = 3
    source: int
    log: bool = False
    groups: int = 1
    masked: bool = False

    def version(self, sources: Sequence[Shape]) -> int:
        """Return 3, which has no groups."""
        return 3 if self.groups == 1 and not self.masked else 4

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the shape of the source."""
        check_groups(self.groups, sources[0])
        return sources[0]

    @property
    def label(self) -> str:
        """The usual name."""
        return "log softmax" if self.log else self.kind


OPERATIONS: dict[str, type[Operation]] = {
    operation.kind: operation
    for operation in (
        Convolution, Pooling, AdaptivePooling, Pointwise, Concatenation, Flattening, Softmax,
        Rearrangement, Contraction, Normalization, Constant, Embedding, Recurrence,
    )
}  # fmt: skip


def _activated(label: str, activation: Activation) -> str:
    return label if activation.name == "none" else f"{label} + {activation.label}"


def _check_window(operation: Convolution | Pooling) -> None:
    check_limit("kernel", operation.kernel, 1, MAX_KERNEL)
    check_limit("stride", operation.stride, 1, MAX_STRIDE)
    check_limit("padding", operation.padding, 0, MAX_PADDING)
    check_limit("dilation", operation.dilation, 1, MAX_DILATION)
