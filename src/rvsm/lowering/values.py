"""Values: tensors of the network as views of nodes, and how they get into the order that an operation needs.

An operation asks for the axes that it needs as channels, or as channels, rows and columns. If the numbers already lie
so, the node itself is taken; otherwise a rearrangement is made, once for each order. What is known when the network
is compiled is rearranged then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from rvsm.lowering.draft import Node, array, node, with_weights
from rvsm.lowering.views import BATCH, Axis, Key, Size, View, merged
from rvsm.runtime.plan.operation import Shape
from rvsm.runtime.plan.operations import Flattening
from rvsm.runtime.plan.tensors import MAX_AXES, Constant, Rearrangement

EXACT = 1 << 24  # integers up to this one are float32 numbers


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor: which numbers of a node it consists of.

    Truth values and integers are numbers, too; none of them is larger than ``bound``, so that they stay exact.
    """

    node: Node
    view: View
    dtype: torch.dtype = torch.float32
    bound: int = EXACT

    @property
    def sizes(self) -> list[Size]:
        """The sizes of its dimensions."""
        return self.view.sizes

    @property
    def rank(self) -> int:
        """The number of its dimensions."""
        return len(self.view.dims)

    @property
    def whole(self) -> bool:
        """Whether it consists of all numbers of its node, each once."""
        axes = merged(self.view.axis(key) for key in self.view.in_memory(self.view.keys))
        return self.view.offset == 0 and axes == merged([Axis(prod(self.node.shape), 1)])

    @property
    def movable(self) -> bool:
        """Whether its axes are so few that its numbers can be put into the order of its dimensions."""
        return len(merged(self.view.axis(key) for key in self.view.keys)) <= MAX_AXES

    @property
    def most(self) -> bool:
        """Whether it consists of more than half of the numbers of its node.

        To compute with all numbers of the node, of which nobody reads some, is cheaper then than to copy those that
        are needed.
        """
        return 2 * prod(size for _, size in self.sizes) > prod(self.node.shape)


def is_value(*values: Any) -> bool:
    """Return whether all of these are values of the network."""
    return all(isinstance(value, Value) for value in values)


def is_tensor(value: Any) -> TypeGuard[Tensor]:
    """Return whether this is a tensor that is known already, of a type whose numbers are exact in float32."""
    if not isinstance(value, Tensor):
        return False
    if value.dtype in (torch.float32, torch.bool):
        return True
    return value.dtype in (torch.int64, torch.int32) and bool((value.abs() <= EXACT).all())


def constant(name: str, tensor: Tensor) -> Value:
    """Return a known tensor as a value, the same for all images."""
    numbers = array(tensor).reshape(-1)
    shape = (len(numbers), 1, 1)
    made = with_weights(Constant(name=name, result=shape), [], numbers.reshape(shape))
    return Value(made, View.dense([(False, size) for size in tensor.shape]), tensor.dtype)


def as_value(name: str, given: Any) -> Value | None:
    """Return a value, or a known tensor or number as one."""
    if isinstance(given, bool | int | float):
        given = torch.tensor(given, dtype=torch.float32 if isinstance(given, float) else None)
    return given if isinstance(given, Value) else constant(name, given) if is_tensor(given) else None


def shaped(x: Node, shape: Shape) -> Node:
    """Return a node with the same numbers in the same order, as a map of another shape."""
    if x.shape == shape:
        return x
    count = prod(shape)
    return _other(x, Rearrangement(name="view", source=0, sizes=(count,), strides=(1,), result=shape))


def rearranged(value: Value, order: Sequence[Key], shape: Shape) -> Node:
    """Return a map whose numbers are those of a value, in this order of its axes."""
    view = value.view
    axes = merged(view.axis(key) for key in order) or [Axis(1, 1)]
    if view.offset == 0 and axes == [Axis(prod(value.node.shape), 1)]:
        return shaped(value.node, shape)
    if len(axes) > MAX_AXES:
        raise ValueError(f"a rearrangement of {len(axes)} axes")
    sizes, strides = zip(*axes, strict=True)
    operation = Rearrangement(
        name="order", source=0, offset=view.offset, sizes=sizes, strides=strides, result=shape
    )  # fmt: skip
    return _other(value.node, operation)


def _other(x: Node, o: Rearrangement) -> Node:
    """Return a rearrangement of a node, which is made once."""
    if o not in x.others:
        if isinstance(x.operation, Constant) and x.weights is not None:
            flat = x.weights.reshape(-1)[o.offset :]
            moved = np.lib.stride_tricks.as_strided(flat, o.sizes, [4 * stride for stride in o.strides])
            numbers = np.ascontiguousarray(moved).reshape(o.result)
            x.others[o] = with_weights(Constant(name=x.operation.name, result=o.result), [], numbers)
        elif o.is_range and o.offset == 0 and o.result[1:] == (1, 1) and prod(x.shape) == o.result[0]:
            x.others[o] = node(Flattening(name="flatten", source=0), [x])
        else:
            x.others[o] = node(o, [x])
    return x.others[o]


def settled(value: Value, order: Sequence[Key] | None = None) -> Value:
    """Return the same tensor with its numbers in some order of its axes, by default that of its dimensions."""
    order = value.view.keys if order is None else order
    sizes = [value.view.axis(key).size for key in order] or [1]
    made = rearranged(value, order, (sizes[0], 1, prod(sizes[1:])))
    return Value(made, value.view.laid(order), value.dtype)


def with_channels(value: Value, dims: Sequence[int]) -> Value:
    """Return the same tensor with some dimensions as the channels of its node, and the others as positions."""
    view = value.view
    leading = [key for d in dims for key in view.keys if key[0] == d]
    order = leading + view.in_memory([key for key in view.keys if key not in leading])
    channels = prod(view.axis(key).size for key in leading)
    positions = prod(view.axis(key).size for key in order) // channels
    shape = value.node.shape if value.node.shape[0] == channels else (channels, 1, positions)
    if prod(shape) != channels * positions:
        shape = (channels, 1, positions)
    return Value(rearranged(value, order, shape), view.laid(order), value.dtype)


def replaced(value: Value, made: Node, dim: int, size: int) -> Value:
    """Return the value of a node whose channels, which were a dimension of ``value``, have another number now."""
    positions = prod(made.shape[1:])
    dims = list(value.view.dims)
    dims[dim] = (Axis(size, positions),) if size > 1 else ()
    return Value(made, View(tuple(dims)))


def as_map(value: Value) -> Value | None:
    """Return a value as images of channels, rows and columns (or a line), in this order; None if it is none."""
    if value.rank not in (3, 4) or value.view.dims[0] != (BATCH,):
        return None
    sizes = [size for _, size in value.sizes[1:]]
    shape = (sizes[0], 1, sizes[1]) if value.rank == 3 else (sizes[0], sizes[1], sizes[2])
    return Value(rearranged(value, value.view.keys, shape), value.view.laid(value.view.keys), value.dtype)


def of_map(made: Node, like: Value) -> Value:
    """Return a node as a tensor of images of channels, rows and columns, or without rows if ``like`` has none."""
    sizes = made.shape if like.rank == 4 else (made.shape[0], made.shape[2])
    return Value(made, View.dense([(True, 1), *((False, size) for size in sizes)]))


def reshaped(value: Value, sizes: Sequence[Size]) -> Value | None:
    """Return a value with other dimensions; its numbers move if they have to."""
    for each in (value, None):
        view = (each or settled(value)).view.reshaped(sizes)
        if view is not None:
            return Value((each or settled(value)).node, view, value.dtype)
    return None
