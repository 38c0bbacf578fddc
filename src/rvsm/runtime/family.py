"""A family of plans: a network for sequences of any length up to the longest, as one graph whose sizes follow laws.

Weights are the same for all lengths, but for tables of positions, masks and the like. Of these, shorter sequences have
a corner: the first entries of each axis that depends on the length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.graph import integer, plan_of, table
from rvsm.runtime.laws import at
from rvsm.runtime.plan.plan import MAX_POSITIONS, Plan, Weights

MAX_FACTORS = 4  # axes that are one dimension of the weights


@dataclass(frozen=True, eq=False)
class Family:
    """Plans for ``shortest`` to ``longest`` positions.

    ``graph`` has laws in the place of integers that depend on the length; ``weights`` and ``biases`` are those of the
    longest sequences. ``axes`` has, for operations whose weights depend on the length, the axes of each dimension.
    """

    graph: Any
    shortest: int
    longest: int
    weights: Mapping[int, Weights]
    biases: Mapping[int, NDArray[np.float32]]
    axes: Mapping[int, Any]

    def plan(self, length: int) -> Plan:
        """Return the plan for sequences of this length, which is checked like any other."""
        if not self.shortest <= length <= self.longest:
            raise ValueError(f"sequences may have {self.shortest} to {self.longest} positions but these have {length}")
        weights, biases = dict(self.weights), dict(self.biases)
        for k in self.axes if length < self.longest else ():
            weights[k] = Weights.of(self._corner(k, self.weights[k].dense(), length))
            if len(biases[k]):
                biases[k] = self._corner(k, biases[k], length)
        return replace(self.bare(length), weights=weights, biases=biases, complete=True)

    def bare(self, length: int) -> Plan:
        """Return the plan for a length without its weights."""
        return bare_plan(self.graph, length)

    def _corner(self, k: int, numbers: NDArray[np.float32], length: int) -> NDArray[np.float32]:
        """Return the part of weights or biases, which have the first dimension of the weights, for a length."""
        return corner(numbers, self.axes[k][: numbers.ndim], self.longest, length)


def bare_plan(graph: Any, length: int) -> Plan:
    """Return the plan of a graph with laws, without its weights."""
    try:
        return plan_of(at(graph, length))
    except RecursionError:
        raise ValueError("the graph is too deep") from None


def corner(numbers: NDArray[np.float32], axes: Any, longest: int, length: int) -> NDArray[np.float32]:
    """Return the first entries along each axis, as many as sequences of this length have.

    >>> numbers = np.arange(9, dtype=np.float32)  # three times three
    >>> corner(numbers, [[{"length": [0, 1, 0]}, {"length": [0, 1, 0]}]], 3, 2).tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    whole, parts = ([[_size(axis) for axis in dim] for dim in at(axes, n)] for n in (longest, length))
    full, cut = list(chain(*whole)), list(chain(*parts))
    if [prod(dim) for dim in whole] != list(numbers.shape) or any(a > b for a, b in zip(cut, full, strict=True)):
        raise ValueError(f"weights of shape {numbers.shape} cannot have the axes {whole!r:.80}, {parts!r:.80}")
    few = numbers.reshape(full)[tuple(slice(size) for size in cut)]
    return np.ascontiguousarray(few).reshape([prod(dim) for dim in parts])


def _size(data: object) -> int:
    return integer(data, "the size of an axis", 1)


def lengths_of(family: Family) -> dict[str, Any]:
    """Return what a graph does not say about its lengths, as JSON data; ``checked_lengths`` is the inverse."""
    return {
        "shortest": family.shortest,
        "longest": family.longest,
        "axes": {str(k): axes for k, axes in family.axes.items()},
    }


def checked_lengths(data: object) -> tuple[int, int, dict[int, Any]]:
    """Return the shortest and the longest sequence, and the axes of weights that depend on the length."""
    found = table(data, {"shortest", "longest", "axes"}, "lengths")
    axes = found["axes"]
    if not isinstance(axes, dict) or not all(key.isdecimal() and _are_axes(each) for key, each in axes.items()):
        raise ValueError(f"the axes of weights have an unexpected form: {axes!r:.80}")
    longest = integer(found["longest"], "longest", 1, MAX_POSITIONS)
    return integer(found["shortest"], "shortest", 1, longest), longest, {int(k): each for k, each in axes.items()}


def _are_axes(data: object) -> bool:
    dims = data if isinstance(data, list) and 1 <= len(data) <= 4 else [None]
    return all(isinstance(dim, list) and 1 <= len(dim) <= MAX_FACTORS for dim in dims)


def factors(law: Any) -> Sequence[list[Any]]:
    """Return the ways to divide a dimension into axes: products of lengths may have the constant anywhere.

    >>> factors({"length": [0, 2, 0]})
    [[2, {'length': [0, 1, 0]}], [{'length': [0, 1, 0]}, 2]]
    """
    one = {"length": [0, 1, 0]}
    a, b, c = law["length"] if isinstance(law, dict) else (law, 0, 0)
    if a or (b and c) or not (b or c):
        return [[law]]
    lengths = [one] if b else [one, one]
    if (b or c) == 1:
        return [lengths]
    return [[*lengths[:k], b or c, *lengths[k:]] for k in range(len(lengths) + 1)]
