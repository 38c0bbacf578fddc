"""Describing the contents of a file, without compiling it."""

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

from rvsm.files import printable
from rvsm.runtime.family import Family
from rvsm.runtime.file import read, values_in
from rvsm.runtime.plan.operation import Shape
from rvsm.runtime.values import Values


@dataclass(frozen=True)
class Layer:
    """A layer with weights: its name, the shape of its weights and of its output, and how many weights are not zero."""

    name: str
    weights: tuple[int, ...]
    output: Shape
    nonzero: int


@dataclass(frozen=True)
class Description:
    """A file: its size, the network's inputs and outputs, its layers with weights."""

    path: str
    size: int
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    operations: int
    layers: tuple[Layer, ...]
    values: Values = "float32"
    original: int | None = None  # bytes of the original network, which a file does not record
    change: float | None = None  # of the outputs, if the values were rounded, as a fraction; likewise
    lengths: tuple[int, int] | None = None  # shortest and longest sequences, if free; other sizes are for the longest

    @property
    def weights(self) -> int:
        """The number of all weights."""
        return sum(prod(layer.weights) for layer in self.layers)

    @property
    def nonzero(self) -> int:
        """The number of weights that are not zero."""
        return sum(layer.nonzero for layer in self.layers)

    def __str__(self) -> str:
        if self.original is None:
            size = f"{_ratio(4 * self.weights, self.size)} than its layers as dense float32"
        else:
            size = f"{_ratio(self.original, self.size)} than the original network, {self.original:,} bytes of float32"
        shapes = " and ".join("×".join(map(str, shape)) for shape in self.inputs)
        results = " and ".join("×".join(map(str, shape)) for shape in self.outputs)
        free = ""
        if self.lengths is not None:
            free = f" for the longest sequences, which may have {self.lengths[0]} to {self.lengths[1]} positions"
        lines = [
            f"{printable(self.path)}: {self.size:,} bytes; {size}",
            f"takes {shapes}, gives {results}{free}; {self.operations} operations",
            f"{self.weights:,} weights, {self.nonzero:,} not zero"
            f" ({100 * (1 - self.nonzero / max(1, self.weights)):.2f} % zeros), stored as {self.values}",
        ]
        if self.change is not None:
            change = f"{100 * self.change:.2g} % of what they differ by between random inputs"
            lines.append(f"this changes the outputs by {change}")
        lines.append("")
        names = [printable(layer.name) for layer in self.layers]
        width = max(map(len, names), default=0)
        for name, layer in zip(names, self.layers, strict=True):
            count = prod(layer.weights)
            zeros = 100 * (1 - layer.nonzero / max(1, count))
            shape = "×".join(map(str, layer.weights))
            output = "×".join(map(str, layer.output))
            lines.append(f"{name.ljust(width)}  {shape:>16}  {output:>12}  {layer.nonzero:>10,}  {zeros:6.2f} %")
        return "\n".join(lines)


def _ratio(dense: int, size: int) -> str:
    """Return how the size of a file compares with the dense size.

    >>> _ratio(3000, 1000), _ratio(1000, 1500)
    ('3.0 times smaller', '1.5 times larger')
    """
    return f"{dense / max(1, size):.1f} times smaller" if dense >= size else f"{size / max(1, dense):.1f} times larger"


def describe(path: str | os.PathLike[str]) -> Description:
    """Read a file, check it, and return a description of its contents."""
    file = Path(path)
    network = read(file)
    plan = network.plan(network.longest) if isinstance(network, Family) else network
    layers = tuple(
        Layer(plan.operations[k].name, w.shape, plan.shapes[plan.value_of(k)], len(w.values))
        for k, w in plan.weights.items()
    )
    inputs, outputs = tuple(plan.input_sizes()), tuple(plan.output_sizes())
    stored = values_in(file.read_bytes())
    lengths = (network.shortest, network.longest) if isinstance(network, Family) else None
    size = file.stat().st_size
    return Description(str(path), size, inputs, outputs, len(plan.operations), layers, stored, lengths=lengths)
