"""The plan: a network as a list of typed operations on numbered values, free of layouts, addresses and code.

A value is a map of channels × height × width for each image; a vector of features is a map of 1 × 1. Operation k makes
value ``inputs + k``. Inputs and outputs have forms, which say how an array is such a map. A plan can be written as
JSON (without its weights), and what is wrong with one is a ValueError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.activations import Activation
from rvsm.runtime.forms import MAP, check_form
from rvsm.runtime.operations import Convolution, Operation, Shape, operation_from, whole
from rvsm.runtime.weights import Weights

MAX_OPERATIONS = 10_000
MAX_POSITIONS = 1 << 22
MAX_CHANNELS = 1 << 20
MAX_VALUE = 1 << 28  # floats of one value of one image


@dataclass(frozen=True)
class Output:
    """A result: which value, and the form in which it is given."""

    value: int
    form: str = MAP


@dataclass(frozen=True, eq=False)
class Plan:
    """A network that the runtime can play; checked when it is made.

    ``weights`` and ``biases`` are those of the convolutions, by the position of the operation; ``forms`` are those of
    the inputs, maps by default. A plan that is not ``complete`` has no weights yet, and cannot be played.
    """

    inputs: tuple[Shape, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Output, ...]
    weights: Mapping[int, Weights]
    biases: Mapping[int, NDArray[np.float32]]
    forms: tuple[str, ...] = ()
    complete: bool = True
    shapes: tuple[Shape, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.forms:
            object.__setattr__(self, "forms", tuple(MAP for _ in self.inputs))
        object.__setattr__(self, "shapes", self._infer())

    def _infer(self) -> tuple[Shape, ...]:
        """Return the shape of every value, and check the plan on the way."""
        if not self.inputs or not self.outputs or len(self.forms) != len(self.inputs):
            raise ValueError("a plan needs at least one input and one output")
        if len(self.operations) > MAX_OPERATIONS:
            raise ValueError(f"a plan may have {MAX_OPERATIONS} operations but has {len(self.operations)}")
        shapes = list(self.inputs)
        for shape, form in zip(self.inputs, self.forms, strict=True):
            _check_shape(shape, "an input")
            check_form(form, shape, "an input")
        for k, operation in enumerate(self.operations):
            where = f"operation {k} ({operation.name!r})"
            for value in operation.sources():
                if not 0 <= value < len(shapes):
                    raise ValueError(f"{where} takes value {value}, but only {len(shapes)} values exist before it")
            try:
                shape = operation.shape([shapes[value] for value in operation.sources()])
                _check_shape(shape, "its output")
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            if self.complete:
                self._check_weights(k, operation, shapes, where)
            shapes.append(shape)
        for output in self.outputs:
            if not 0 <= output.value < len(shapes):
                raise ValueError(f"the output is value {output.value}, but there are {len(shapes)} values")
            check_form(output.form, shapes[output.value], "an output")
        return tuple(shapes)

    def _check_weights(self, k: int, operation: Operation, shapes: Sequence[Shape], where: str) -> None:
        if not isinstance(operation, Convolution):
            if k in self.weights or k in self.biases:
                raise ValueError(f"{where} is a {operation.kind} and cannot have weights")
            return
        expected = operation.weight_shape(shapes[operation.source])
        if k not in self.weights or k not in self.biases:
            raise ValueError(f"{where} has no weights or no bias")
        if self.weights[k].shape != expected:
            raise ValueError(f"{where} needs weights of shape {expected} but has {self.weights[k].shape}")
        bias = self.biases[k]
        if bias.dtype != np.float32 or bias.shape != (operation.channels,):
            raise ValueError(f"{where} needs a bias of {operation.channels} float32 but has {bias.shape} {bias.dtype}")

    def value_of(self, operation: int) -> int:
        """Return the number of the value that an operation makes."""
        return len(self.inputs) + operation

    def weight_count(self) -> tuple[int, int]:
        """Return the number of weights, and of those that are not zero."""
        return sum(prod(w.shape) for w in self.weights.values()), sum(len(w.values) for w in self.weights.values())

    def describe(self) -> dict[str, Any]:
        """Return the graph as JSON data; ``read`` is the inverse."""
        return {
            "inputs": [
                {"shape": list(shape), "form": form} for shape, form in zip(self.inputs, self.forms, strict=True)
            ],
            "operations": [operation.describe() for operation in self.operations],
            "outputs": [{"value": output.value, "form": output.form} for output in self.outputs],
        }

    @classmethod
    def read(
        cls,
        data: object,
        weights: Mapping[int, Weights],
        biases: Mapping[int, NDArray[np.float32]],
        *,
        complete: bool = True,
    ) -> "Plan":
        """Return the plan that ``describe`` has written, with its weights."""
        graph = _table(data, {"inputs", "operations", "outputs"}, "the graph")
        if not all(isinstance(part, list) for part in graph.values()):
            raise ValueError("the parts of the graph must be lists")
        if len(graph["operations"]) > MAX_OPERATIONS or len(graph["inputs"]) > 64 or len(graph["outputs"]) > 64:
            raise ValueError("the graph has too many parts")
        inputs, forms = [], []
        for item in graph["inputs"]:
            table = _table(item, {"shape", "form"}, "an input")
            inputs.append(_shape(table["shape"]))
            forms.append(table["form"])
        outputs = []
        for item in graph["outputs"]:
            table = _table(item, {"value", "form"}, "an output")
            outputs.append(Output(whole(table["value"], "value", 0, 1 << 31), table["form"]))
        operations = tuple(operation_from(item) for item in graph["operations"])
        return cls(tuple(inputs), operations, tuple(outputs), weights, biases, tuple(forms), complete)


def activation_name(activation: Activation) -> str:
    """Return an activation as a reader would name it.

    >>> activation_name(Activation("clamp", 0.0, float("inf")))
    'relu'
    """
    if activation.name != "clamp":
        return activation.name
    if activation.a == 0.0:
        return {float("inf"): "relu", 6.0: "relu6"}.get(activation.b, f"clamp(0, {activation.b:g})")
    return f"clamp({activation.a:g}, {activation.b:g})"


def _check_shape(shape: Shape, what: str) -> None:
    channels, height, width = shape
    if min(shape) < 1:
        raise ValueError(f"{what} would be empty: {shape}")
    if channels > MAX_CHANNELS or height * width > MAX_POSITIONS or prod(shape) > MAX_VALUE:
        raise ValueError(f"{what} is too large: {shape}")


def _shape(data: object) -> Shape:
    if not isinstance(data, list) or len(data) != 3:
        raise ValueError(f"a shape must be three whole numbers but is {data!r:.80}")
    c, h, w = (whole(item, "shape", 1, 1 << 28) for item in data)
    return c, h, w


def _table(data: object, keys: set[str], what: str) -> dict[str, Any]:
    if not isinstance(data, dict) or set(data) != keys:
        raise ValueError(f"{what} must have {', '.join(sorted(keys))}")
    return data
