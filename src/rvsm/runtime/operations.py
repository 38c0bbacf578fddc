"""The operations of a plan: what each takes, the shape that it gives, and how it is written in a file."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.activations import ACTIVATIONS, NOTHING, Activation

Shape = tuple[int, int, int]
Pair = tuple[int, int]

MAX_KERNEL, MAX_STRIDE, MAX_DILATION, MAX_PADDING = 4096, 1024, 1024, 1024


@dataclass(frozen=True, kw_only=True)
class Operation(ABC):
    """One step of a plan; ``name`` is for people."""

    kind: ClassVar[str]
    name: str

    @abstractmethod
    def sources(self) -> tuple[int, ...]:
        """Return the values that it takes."""

    @abstractmethod
    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the shape of its output, or raise ValueError if it cannot take these shapes."""

    def describe(self) -> dict[str, Any]:
        """Return it as JSON data; what is as usual is left out."""
        data: dict[str, Any] = {"kind": self.kind}
        for item in fields(self):
            value = getattr(self, item.name)
            if value == item.default:
                continue
            if isinstance(value, Activation):
                value = [value.name, _written(value.a), _written(value.b)]
            data[item.name] = list(value) if isinstance(value, tuple) else value
        return data


@dataclass(frozen=True, kw_only=True)
class Convolution(Operation):
    """activation(weights * source + bias + residual); a linear layer is a convolution as large as its input."""

    kind = "convolution"
    source: int
    residual: int | None = None
    channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    activation: Activation = NOTHING

    def sources(self) -> tuple[int, ...]:
        """Return the source, and the residual if there is one."""
        return (self.source,) if self.residual is None else (self.source, self.residual)

    def weight_shape(self, source: Shape) -> tuple[int, int, int, int]:
        """Return the shape of the weights for an input of this shape."""
        return self.channels, source[0] // self.groups, *self.kernel

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return channels and the sizes of a convolution."""
        _limit("kernel", self.kernel, 1, MAX_KERNEL)
        _limit("stride", self.stride, 1, MAX_STRIDE)
        _limit("padding", self.padding, 0, MAX_PADDING)
        _limit("dilation", self.dilation, 1, MAX_DILATION)
        if self.groups < 1 or sources[0][0] % self.groups or self.channels < 1 or self.channels % self.groups:
            raise ValueError(f"{sources[0][0]} channels into {self.channels} cannot be in {self.groups} groups")
        sizes = [
            (size + 2 * self.padding[k] - self.dilation[k] * (self.kernel[k] - 1) - 1) // self.stride[k] + 1
            for k, size in enumerate(sources[0][1:])
        ]
        shape = self.channels, sizes[0], sizes[1]
        if self.residual is not None and sources[1] != shape:
            raise ValueError(f"the residual is {sources[1]} but the output {shape}")
        return shape


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

    def sources(self) -> tuple[int, ...]:
        """Return the source."""
        return (self.source,)

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the sizes of PyTorch's pooling; with ``ceil`` a last window must begin inside."""
        if self.mode not in ("max", "mean"):
            raise ValueError(f"unknown pooling {self.mode!r}; choose from max, mean")
        _limit("kernel", self.kernel, 1, MAX_KERNEL)
        _limit("stride", self.stride, 1, MAX_STRIDE)
        _limit("padding", self.padding, 0, MAX_PADDING)
        _limit("dilation", self.dilation, 1, MAX_DILATION)
        sizes = []
        for k, size in enumerate(sources[0][1:]):
            if 2 * self.padding[k] > self.kernel[k]:
                raise ValueError(f"padding {self.padding} is more than half of the kernel {self.kernel}")
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
        first = np.maximum(0, -(starts // step))  # of the taps, start + step · tap being their positions
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

    def sources(self) -> tuple[int, ...]:
        """Return the source."""
        return (self.source,)

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the channels of the source and ``size``."""
        if self.mode not in ("max", "mean"):
            raise ValueError(f"unknown pooling {self.mode!r}; choose from max, mean")
        _limit("size", self.size, 1, MAX_KERNEL)
        return sources[0][0], *self.size

    def windows(self, size: int, count: int, axis: int) -> NDArray[np.int64]:
        """Return, for each output along an axis, first position, number of positions, and the divisor's part."""
        numbers = np.arange(count, dtype=np.int64)
        starts = numbers * size // count
        inside = -(-(numbers + 1) * size // count) - starts
        return np.stack([starts, inside, inside], axis=1)


@dataclass(frozen=True, kw_only=True)
class Pointwise(Operation):
    """activation(a ∘ b) with ∘ one of ``add``, ``mul``, ``none``; b may be 1 × 1 and counts for all positions then."""

    kind = "pointwise"
    operation: str
    a: int
    b: int | None = None
    activation: Activation = NOTHING

    def sources(self) -> tuple[int, ...]:
        """Return a, and b if there is one."""
        return (self.a,) if self.b is None else (self.a, self.b)

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the shape of a."""
        if self.operation not in ("add", "mul", "none"):
            raise ValueError(f"unknown operation {self.operation!r}; choose from add, mul, none")
        if (self.operation == "none") != (self.b is None):
            raise ValueError(f"{self.operation} with {len(sources)} values")
        if self.b is not None and sources[1] not in (sources[0], (sources[0][0], 1, 1)):
            raise ValueError(f"shapes {sources[0]} and {sources[1]} do not go together")
        return sources[0]


@dataclass(frozen=True, kw_only=True)
class Concatenation(Operation):
    """Channels of one value after those of another."""

    kind = "concatenation"
    parts: tuple[int, ...]

    def sources(self) -> tuple[int, ...]:
        """Return the parts."""
        return self.parts

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the sum of the channels."""
        if not sources or any(shape[1:] != sources[0][1:] for shape in sources):
            raise ValueError(f"the shapes {list(sources)} cannot be concatenated")
        return sum(shape[0] for shape in sources), *sources[0][1:]


@dataclass(frozen=True, kw_only=True)
class Flattening(Operation):
    """Channels, rows and columns as one row of features."""

    kind = "flattening"
    source: int

    def sources(self) -> tuple[int, ...]:
        """Return the source."""
        return (self.source,)

    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the number of all values as channels."""
        return math.prod(sources[0]), 1, 1


OPERATIONS: dict[str, type[Operation]] = {
    operation.kind: operation
    for operation in (Convolution, Pooling, AdaptivePooling, Pointwise, Concatenation, Flattening)
}


def operation_from(data: object) -> Operation:
    """Return the operation that ``describe`` has written; anything unexpected is a ValueError."""
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str) or data["kind"] not in OPERATIONS:
        raise ValueError(f"an operation must be one of {', '.join(OPERATIONS)}, not {data!r:.80}")
    kind = OPERATIONS[data["kind"]]
    expected = {item.name: item.type for item in fields(kind)}
    needed = {item.name for item in fields(kind) if item.default is MISSING}
    if not {"kind", *needed} <= set(data) <= {"kind", *expected}:
        raise ValueError(f"a {data['kind']} must have {', '.join(sorted(needed))}; it has {', '.join(sorted(data))}")
    given = {name: annotation for name, annotation in expected.items() if name in data}
    return kind(**{name: _value(data[name], _type(annotation), name) for name, annotation in given.items()})


def whole(data: object, name: str, low: int, high: int) -> int:
    """Return ``data`` if it is a whole number in range."""
    if not isinstance(data, int) or isinstance(data, bool) or not low <= data <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high} but is {data!r:.80}")
    return data


def _type(annotation: object) -> str:
    plain = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    return getattr(annotation, "__name__", "") if plain else str(annotation)


def _value(data: object, kind: str, name: str) -> Any:  # noqa: PLR0911 - one for each type
    """Return ``data`` as the type of a field."""
    if kind == "str" and isinstance(data, str) and len(data) <= 1000:
        return data
    if kind == "bool" and isinstance(data, bool):
        return data
    if kind == "int" or (kind == "int | None" and data is not None):
        return whole(data, name, 0, 1 << 31)
    if kind == "int | None":
        return None
    if kind == "tuple[int, int]" and isinstance(data, list) and len(data) == 2:
        return tuple(whole(item, name, 0, 1 << 31) for item in data)
    if kind == "tuple[int, ...]" and isinstance(data, list) and len(data) <= 1000:
        return tuple(whole(item, name, 0, 1 << 31) for item in data)
    if kind == "Activation" and isinstance(data, list) and len(data) == 3 and data[0] in tuple(ACTIVATIONS):
        return Activation(data[0], _number(data[1]), _number(data[2]))
    raise ValueError(f"{name} cannot be {data!r:.80}")


def _number(data: object) -> float:
    """Return a float; infinity, which JSON does not have, is written as text."""
    if data in ("inf", "-inf"):
        return float(str(data))
    if isinstance(data, int | float) and not isinstance(data, bool) and abs(data) < 3e38:
        return float(data)
    raise ValueError(f"a number is expected, not {data!r:.80}")


def _written(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _limit(name: str, pair: Pair, low: int, high: int) -> None:
    if not all(low <= item <= high for item in pair):
        raise ValueError(f"{name} must be from {low} to {high} but is {pair}")
