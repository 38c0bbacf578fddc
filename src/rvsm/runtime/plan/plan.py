"""The plan: a network as a list of typed operations on numbered values, free of layouts, addresses and code.

A value is a map of channels × height × width for each image; a vector of features is a map of 1 × 1. Operation k makes
value ``inputs + k``. The axes of inputs and outputs map arrays to such values. An invalid plan raises a ValueError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.plan.axes import MAP, check_axes, sizes_of
from rvsm.runtime.plan.operation import Operation, Shape

MAX_OPERATIONS = 10_000
MAX_POSITIONS = 1 << 22
MAX_CHANNELS = 1 << 20
MAX_VALUE = 1 << 28  # floats in one value of one image


@dataclass(frozen=True, eq=False)
class Weights:
    """A sparse tensor: one bit for each weight, and the non-zero values.

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
            raise ValueError(
                f"the mask of {count} weights must have {-(-count // 8)} bytes but has the shape {self.bits.shape}"
            )
        if self.values.dtype != np.float32 or self.values.ndim != 1:
            raise ValueError("the values must be a one-dimensional float32 array")
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
        """The fraction of zeros."""
        return 1.0 - len(self.values) / max(1, prod(self.shape))


@dataclass(frozen=True)
class Output:
    """A result: the number of its value, and the axes of the returned array; ``sizes`` if it has other sizes.

    The images are the dimension ``batch`` of the array. If results have names, they are returned as a dict.
    """

    value: int
    axes: str = MAP
    sizes: tuple[int, ...] | None = None
    name: str = ""
    batch: int = 0

    def check_batch(self) -> None:
        """Raise ValueError if the array has no such dimension."""
        dimensions = 1 + len(self.axes if self.sizes is None else self.sizes)
        if not 0 <= self.batch < dimensions:
            raise ValueError(f"images must be one of {dimensions} dimensions but are number {self.batch}")


@dataclass(frozen=True)
class Array:
    """What else is known about the array of an input: its ``sizes`` for one image, if they do not follow from its axes.

    An ``integer`` array has integers or truth values. With a ``name``, it can be given as a keyword.
    """

    sizes: tuple[int, ...] | None = None
    integer: bool = False
    name: str = ""


@dataclass(frozen=True, eq=False)
class Plan:
    """A network that the runtime can execute; checked when it is created.

    The keys of ``weights`` and ``biases`` are positions of operations. ``axes`` are those of inputs, maps by default,
    and ``arrays`` has an entry for each input, or none at all.
    A plan that is not ``complete`` has no weights yet, and cannot be executed.
    """

    inputs: tuple[Shape, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Output, ...]
    weights: Mapping[int, Weights]
    biases: Mapping[int, NDArray[np.float32]]
    axes: tuple[str, ...] = ()
    complete: bool = True
    arrays: tuple[Array, ...] = ()
    shapes: tuple[Shape, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.axes:
            object.__setattr__(self, "axes", tuple(MAP for _ in self.inputs))
        if not self.arrays:
            object.__setattr__(self, "arrays", tuple(Array() for _ in self.inputs))
        object.__setattr__(self, "shapes", self._infer())

    def _infer(self) -> tuple[Shape, ...]:
        """Return the shape of every value, and check the plan."""
        if not self.inputs or not self.outputs or not len(self.axes) == len(self.arrays) == len(self.inputs):
            raise ValueError("a plan needs at least one input and one output")
        if len(self.operations) > MAX_OPERATIONS:
            raise ValueError(f"a plan may have at most {MAX_OPERATIONS} operations but has {len(self.operations)}")
        shapes = list(self.inputs)
        for names in ([array.name for array in self.arrays], [output.name for output in self.outputs]):
            if any(names) and ("" in names or len(set(names)) < len(names)):
                raise ValueError(f"names must be given for all inputs or outputs, and differ, but are {names!r:.80}")
        for shape, axes, array in zip(self.inputs, self.axes, self.arrays, strict=True):
            check_shape(shape, "an input")
            check_axes(axes, shape, "an input", array.sizes)
        for k, operation in enumerate(self.operations):
            where = f"operation {k} ({operation.name!r})"
            for value in operation.sources():
                if not 0 <= value < len(shapes):
                    raise ValueError(f"{where} takes value {value}, but only {len(shapes)} values exist before it")
            try:
                shape = operation.shape([shapes[value] for value in operation.sources()])
                check_shape(shape, "its output")
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            if self.complete:
                self._check_weights(k, operation, shapes, where)
            shapes.append(shape)
        for output in self.outputs:
            if not 0 <= output.value < len(shapes):
                raise ValueError(f"the output is value {output.value}, but there are {len(shapes)} values")
            check_axes(output.axes, shapes[output.value], "an output", output.sizes)
            output.check_batch()
        return tuple(shapes)

    def _check_weights(self, k: int, operation: Operation, shapes: Sequence[Shape], where: str) -> None:
        expected = operation.weight_shape([shapes[value] for value in operation.sources()])
        if expected is None:
            if k in self.weights or k in self.biases:
                raise ValueError(f"{where} is a {operation.kind} and cannot have weights")
            return
        if k not in self.weights or k not in self.biases:
            raise ValueError(f"{where} has no weights or no bias")
        if self.weights[k].shape != expected:
            raise ValueError(f"{where} needs weights of shape {expected} but has {self.weights[k].shape}")
        bias, size = self.biases[k], operation.bias_size(expected)
        if bias.dtype != np.float32 or bias.shape != (size,):
            raise ValueError(f"{where} needs a bias of {size} float32 but has {bias.shape} {bias.dtype}")

    def value_of(self, operation: int) -> int:
        """Return the number of an operation's result."""
        return len(self.inputs) + operation

    def input_sizes(self) -> list[tuple[int, ...]]:
        """Return the sizes of the inputs for one image."""
        given = zip(self.inputs, self.axes, self.arrays, strict=True)
        return [sizes_of(axes, shape) if array.sizes is None else array.sizes for shape, axes, array in given]

    def output_sizes(self) -> list[tuple[int, ...]]:
        """Return the sizes of the results for one image."""
        return [
            sizes_of(output.axes, self.shapes[output.value]) if output.sizes is None else output.sizes
            for output in self.outputs
        ]


def check_shape(shape: Shape, subject: str) -> None:
    """Raise ValueError if a map of this shape would be empty or too large."""
    channels, height, width = shape
    if min(shape) < 1:
        raise ValueError(f"{subject} would be empty: {shape}")
    if channels > MAX_CHANNELS or height * width > MAX_POSITIONS or prod(shape) > MAX_VALUE:
        raise ValueError(f"{subject} is too large: {shape}")
