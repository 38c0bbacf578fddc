"""Activations, and arithmetic with values and constants."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rvsm.lowering.draft import Floats, Node, affine, array, is_constant, is_node, node
from rvsm.runtime.plan.axes import sizes_of
from rvsm.runtime.plan.operation import Activation
from rvsm.runtime.plan.operations import Pointwise, Softmax


def activated(name: str, x: Any, activation: Activation) -> Node | None:
    """Return an activation of a value."""
    return node(Pointwise(name=name, operation="none", a=0, activation=activation), [x]) if is_node(x) else None


def clamp(name: str, x: Any, low: Any = None, high: Any = None) -> Node | None:
    """Return x between two ends."""
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    if not all(isinstance(end, int | float) for end in ends):
        return None
    return activated(name, x, Activation("clamp", float(ends[0]), float(ends[1])))


def leaky(name: str, x: Any, slope: float = 0.01) -> Node | None:
    """Return x, multiplied by a slope where it is negative."""
    return activated(name, x, Activation("leaky", slope))


def prelu(name: str, x: Any, slope: Any) -> Node | None:
    """Return x, multiplied by a slope where it is negative; the runtime does not have a slope for each channel."""
    return leaky(name, x, slope.item()) if is_constant(slope) and slope.numel() == 1 else None


def gelu(name: str, x: Any, approximate: str = "none") -> Node | None:
    """Return x·Φ(x), exactly or with tanh."""
    return activated(name, x, Activation("gelu" if approximate == "none" else "gelu_tanh"))


def softmax(name: str, x: Any, dim: int, dtype: Any = None, *, log: bool = False) -> Node | None:
    """Return the softmax over the channels; ``dtype`` is that of the result, or aten's word on half precision."""
    if not is_node(x) or dtype not in (None, False, torch.float32) or dim % (len(x.axes) + 1) != x.axes.index("c") + 1:
        return None
    return node(Softmax(name=name, source=0, log=log), [x])


def _per_channel(value: Any, x: Node) -> Floats | None:
    """Return a number, or a tensor with one number for each channel of x, as a row."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return np.full(x.shape[0], value, dtype=np.float32)
    if not is_constant(value):
        return None
    channels = (1, *sizes_of(x.axes, (x.shape[0], 1, 1)))
    if value.ndim > len(channels):
        return None
    if value.numel() == 1:
        return np.full(x.shape[0], value.item(), dtype=np.float32)
    sizes = (1,) * (len(channels) - value.ndim) + tuple(value.shape)
    return array(value).reshape(-1) if sizes == channels else None


def _with_constant(
    name: str, x: Any, value: Any, coefficients: Callable[[Floats], tuple[Floats, Floats]]
) -> Node | None:
    """Return scale·x + shift, where ``coefficients`` gives both for a constant of each channel."""
    row = _per_channel(value, x) if is_node(x) else None
    return None if row is None else affine(name, x, *coefficients(row))


def _add(row: Floats) -> tuple[Floats, Floats]:
    return np.ones_like(row), row


def _multiply(row: Floats) -> tuple[Floats, Floats]:
    return row, np.zeros_like(row)


def two(name: str, a: Any, b: Any, alpha: float = 1, *, operation: str) -> Node | None:
    """Return a sum or a product of two values, or of a value and a constant for each channel."""
    if alpha != 1:
        return None
    if not is_node(a, b):
        x, other = (a, b) if is_node(a) else (b, a)
        return _with_constant(name, x, other, _add if operation == "add" else _multiply)
    if a.axes != b.axes:  # a vector beside a map counts along the map's columns, not along its channels
        return None
    if a.shape != b.shape and a.shape == (b.shape[0], 1, 1):
        a, b = b, a
    return node(Pointwise(name=name, operation=operation, a=0, b=0), [a, b])


def minus(name: str, a: Any, b: Any, alpha: float = 1) -> Node | None:
    """Return a value minus a constant for each channel."""
    return _with_constant(name, a, b, lambda row: _add(-row)) if alpha == 1 else None


def divide(name: str, a: Any, b: Any) -> Node | None:
    """Return a value over a constant for each channel."""
    return _with_constant(name, a, b, lambda row: _multiply(np.float32(1) / row))


def negative(name: str, x: Any) -> Node | None:
    """Return −x."""
    return _with_constant(name, x, -1, _multiply)
