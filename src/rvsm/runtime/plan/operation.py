"""The interface of a plan's operations: their input values, their result's shape, and their weights.

An operation is a frozen dataclass; its fields are stored in the file.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

Shape = tuple[int, int, int]
Pair = tuple[int, int]

ACTIVATIONS = (
    "none", "clamp", "leaky", "sigmoid", "tanh", "silu", "hardsigmoid", "hardswish", "gelu", "gelu_tanh",
    # since version 4 of the file format
    "line", "elu", "softplus", "mish", "erf", "exp", "log", "square", "cube", "sqrt", "rsqrt", "reciprocal", "power",
    "abs", "equal", "above", "below", "at_least", "at_most", "choose",
)  # fmt: skip
OLD_ACTIVATIONS = ACTIVATIONS[: ACTIVATIONS.index("line")]


@dataclass(frozen=True)
class Activation:
    """An activation with its two parameters, such as the slope of a leaky ReLU or the two ends of a clamp.

    ``line`` is a·x + b, ``elu`` is a·(eˣ − 1) below zero and b·x above, ``power`` is xᵃ. ``equal``, ``above``,
    ``below``, ``at_least`` and ``at_most`` compare x with a and give 1 or 0; ``choose`` is a where x is not 0, else b.

    >>> Activation("clamp", 0.0, 6.0).label
    'relu6'
    """

    name: str = "none"
    a: float = 0.0
    b: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in ACTIVATIONS:
            raise ValueError(f"unknown activation {self.name!r}; choose from {', '.join(ACTIVATIONS)}")

    @property
    def label(self) -> str:
        """The usual name."""
        if self.name != "clamp":
            return self.name
        if self.a == 0.0:
            return {math.inf: "relu", 6.0: "relu6"}.get(self.b, f"clamp(0, {self.b:g})")
        return f"clamp({self.a:g}, {self.b:g})"


NOTHING = Activation()
RELU = Activation("clamp", 0.0, math.inf)


@dataclass(frozen=True, kw_only=True)
class Operation(ABC):
    """One operation of a plan; ``name`` is for display, ``kind`` for the file, ``takes`` lists the fields with values.

    ``since`` is the first version of the file format that has it: older readers can read files without new operations.
    """

    kind: ClassVar[str]
    since: ClassVar[int] = 2
    takes: ClassVar[tuple[str, ...]] = ("source",)
    name: str

    def version(self, sources: Sequence[Shape]) -> int:
        """Return the first version of the file format that has this operation with these fields and sources."""
        activation = getattr(self, "activation", NOTHING)
        return max(self.since, 2 if activation.name in OLD_ACTIVATIONS else 4)

    def sources(self) -> tuple[int, ...]:
        """Return the input values."""
        given = [getattr(self, field) for field in self.takes]
        if given and isinstance(given[0], tuple):
            return tuple(given[0])
        return tuple(value for value in given if value is not None)

    def taking(self, values: Sequence[int]) -> Self:
        """Return the same operation on other values; a field without a value becomes None."""
        if self.takes and isinstance(getattr(self, self.takes[0]), tuple):
            return replace(self, **{self.takes[0]: tuple(values)})  # type: ignore[arg-type]
        padded = [*values, *[None] * (len(self.takes) - len(values))]
        return replace(self, **dict(zip(self.takes, padded, strict=True)))  # type: ignore[arg-type]

    @abstractmethod
    def shape(self, sources: Sequence[Shape]) -> Shape:
        """Return the shape of its result, or raise ValueError if it cannot take these shapes."""

    def weight_shape(self, sources: Sequence[Shape]) -> tuple[int, ...] | None:
        """Return the shape of its weights, whose first size is that of the bias; None if it has no weights."""
        return None

    def bias_size(self, weights: tuple[int, ...]) -> int:
        """Return the size of the bias of weights of this shape."""
        return weights[0]

    @property
    def label(self) -> str:
        """A description for tables, including fused operations."""
        return self.kind


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError if ``value`` is not one of the choices."""
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}; choose from {', '.join(choices)}")


def check_limit(name: str, pair: Pair, low: int, high: int) -> None:
    """Raise ValueError if one of the two is not in the range."""
    if not all(low <= item <= high for item in pair):
        raise ValueError(f"{name} must be from {low} to {high} but is {pair}")
