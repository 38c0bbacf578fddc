"""Recurrent layers: LSTM, GRU and the plain ones, of any number of layers and in one direction or both.

What the inputs contribute to the gates is a linear layer on all positions at once; the recurrence itself has the hidden
matrix alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rvsm.lowering.draft import Node, array, is_constant, node, with_weights
from rvsm.lowering.place import Place
from rvsm.lowering.translations.layers import linear
from rvsm.lowering.translations.shapes import cat, select, stack
from rvsm.lowering.values import Value, as_value, is_value, rearranged
from rvsm.lowering.views import BATCH, Axis, View
from rvsm.runtime.plan.operation import Shape
from rvsm.runtime.plan.operations import Concatenation
from rvsm.runtime.plan.recurrence import CELLS, Recurrence
from rvsm.runtime.plan.tensors import Constant


def recurrent(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, first: Any, parameters: Sequence[Any], has_biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool, *, cell: str,
) -> Any:  # fmt: skip
    """Return the outputs of the last layer, and the last states of all layers and directions."""
    states = [as_value(at.name, each) for each in (first if isinstance(first, list | tuple) else [first])]
    directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
    if not is_value(x, *states) or not all(map(is_constant, parameters)) or (train and dropout):
        return None
    if len(parameters) != layers * directions * each or x.rank != 3 or x.view.dims[0 if batch_first else 1] != (BATCH,):
        return None
    found: list[list[Value]] = []  # the last states, by layer and direction
    given = x
    for layer in range(layers):
        sides = []
        for direction in range(directions):
            k = layer * directions + direction
            start = [select(at, state, 0, k) for state in states if state is not None]
            own = parameters[k * each : (k + 1) * each]
            outputs, last = _direction(at, given, start, own, cell=cell, backward=direction == 1, dim=int(batch_first))
            sides.append(outputs)
            found.append(last)
        sizes = [*given.sizes[:2], (False, sum(side.sizes[2][1] for side in sides))]
        joined = cat(Place(at.name, sizes, torch.float32), sides, 2) if directions > 1 else sides[0]
        if joined is None:
            return None
        given = joined
    lasts = [_stacked(at, [values[s] for values in found]) for s in range(CELLS[cell].states)]
    return None if None in lasts else [given, *lasts]


def _direction(
    at: Place,
    x: Value,
    start: Sequence[Value | None],
    parameters: Sequence[Any],
    *,
    cell: str,
    backward: bool,
    dim: int,
) -> tuple[Value, list[Value]]:
    """Return outputs and last states of one layer in one direction; ``dim`` is the dimension of the positions."""
    weight, hidden, *biases = parameters
    gates = linear(at, x, weight, *biases[:1])
    if gates is None or None in start:
        raise ValueError("a recurrent layer of other inputs")
    numbers, units, length = CELLS[cell], int(hidden.shape[1]), x.sizes[dim][1]
    keys = [key for d in (2, dim) for key in gates.view.keys if key[0] == d]
    source = rearranged(gates, keys, (numbers.gates * units, 1, length))
    flat: Shape = (units, 1, 1)
    state = _joined(at, [rearranged(value, value.view.keys, flat) for value in start if value is not None])
    operation = Recurrence(name=at.name, source=0, state=0, cell=cell, backward=backward)
    made = with_weights(operation, [source, state], array(hidden), array(biases[1]) if biases else None)
    feature = (Axis(units, length),) if units > 1 else ()
    time = (Axis(length, 1),) if length > 1 else ()
    outputs = View((time, (BATCH,), feature) if dim == 0 else ((BATCH,), time, feature))
    ends = [k * units * length + (0 if backward else length - 1) for k in range(numbers.states)]
    return Value(made, outputs), [Value(made, View(((BATCH,), feature), end)) for end in ends]


def _joined(at: Place, states: Sequence[Node]) -> Node:
    """Return the first states of a cell as one node; known ones, such as zeros, as one constant."""
    known = [state.weights for state in states if isinstance(state.operation, Constant) and state.weights is not None]
    if len(known) < len(states):
        return states[0] if len(states) == 1 else node(Concatenation(name=at.name, parts=()), list(states))
    numbers = np.concatenate(known)
    return with_weights(Constant(name=at.name, result=numbers.shape), [], numbers)


def _stacked(at: Place, values: Sequence[Value]) -> Value | None:
    """Return the last states of all layers and directions, one after the other."""
    if len(values) == 1:
        return Value(values[0].node, View(((), *values[0].view.dims), values[0].view.offset))
    return stack(Place(at.name, [(False, len(values)), *values[0].sizes], torch.float32), values, 0)
