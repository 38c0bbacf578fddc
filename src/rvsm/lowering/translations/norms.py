"""Softmax, norms, means and sums: what is computed from all numbers along some dimensions."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch

from rvsm.lowering.draft import affine, array, is_constant, node, with_weights
from rvsm.lowering.place import Place
from rvsm.lowering.translations.layers import linear
from rvsm.lowering.translations.layers import norm as batch_norm
from rvsm.lowering.translations.pointwise import activated, bound_of, scaled
from rvsm.lowering.translations.shapes import transpose
from rvsm.lowering.values import EXACT, Value, is_tensor, is_value, rearranged, settled, shaped, with_channels
from rvsm.lowering.views import BATCH, Axis, View
from rvsm.runtime.plan.operation import Activation
from rvsm.runtime.plan.operations import AdaptivePooling, Convolution, Softmax
from rvsm.runtime.plan.tensors import Normalization


def _grouped(x: Value, dims: Sequence[int]) -> tuple[Value, int]:
    """Return a value with some dimensions as the channels of each of several groups, and the number of groups.

    Nothing moves if these dimensions lie together in memory.
    """
    view = x.view
    chosen = [key for d in dims for key in view.keys if key[0] == d]
    order = view.in_memory(view.keys)
    start = order.index(chosen[0]) if chosen else 0
    count, inner = (prod(view.axis(key).size for key in keys) for keys in (chosen, order[start + len(chosen) :]))
    groups = prod(view.axis(key).size for key in order[:start])
    if x.whole and order[start : start + len(chosen)] == chosen:
        shape = (groups * count, 1, inner)
        if groups == 1 and x.node.shape[0] == count:
            shape = x.node.shape
        return Value(rearranged(x, order, shape), view.laid(order)), groups
    return with_channels(x, dims), 1


def softmax(at: Place, x: Any, dim: int, dtype: Any = None, *, log: bool = False, masked: bool = False) -> Value | None:
    """Return the softmax along a dimension; ``dtype`` is that of the result, or aten's word on half precision."""
    if not is_value(x) or dtype not in (None, False, torch.float32) or BATCH in x.view.dims[dim % x.rank]:
        return None
    given, groups = _grouped(x, [dim % x.rank])
    made = node(Softmax(name=at.name, source=0, log=log, groups=groups, masked=masked), [given.node])
    return Value(made, given.view)


def layer_norm(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, epsilon: float = 1e-5,
    *options: Any, centered: bool = True,
) -> Value | None:  # fmt: skip
    """Return a norm over the last dimensions."""
    if not is_value(x) or not all(t is None or is_constant(t) for t in (weight, bias)):
        return None
    dims = range(x.rank - len(shape), x.rank)
    if any(BATCH in x.view.dims[d] for d in dims):
        return None
    given, groups = _grouped(x, dims)
    count = prod(shape)
    scale = np.ones(count, dtype=np.float32) if weight is None else array(weight).reshape(-1)
    shift = None if bias is None else array(bias).reshape(-1)
    operation = Normalization(name=at.name, source=0, groups=groups, epsilon=float(epsilon), centered=centered)
    return Value(with_weights(operation, [given.node], scale, shift), given.view)


def rms_norm(at: Place, x: Any, shape: Sequence[int], weight: Any = None, epsilon: Any = None) -> Value | None:
    """Return x over the root of its mean square."""
    epsilon = torch.finfo(torch.float32).eps if epsilon is None else epsilon
    return layer_norm(at, x, shape, weight, None, epsilon, centered=False)


def native_layer_norm(at: Place, x: Any, *given: Any) -> Any:
    """Return a norm; the statistics, its other results, are not computed."""
    return layer_norm(at, x, *given)


def group_norm(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, groups: int, weight: Any = None, bias: Any = None, epsilon: float = 1e-5, *options: Any
) -> Value | None:  # fmt: skip
    """Return a norm over the channels of each group and all positions, then a number for each channel."""
    if not is_value(x) or x.view.dims[0] != (BATCH,) or not all(t is None or is_constant(t) for t in (weight, bias)):
        return None
    given = settled(x)
    channels = x.sizes[1][1]
    total = prod(given.node.shape)
    flat = shaped(given.node, (total, 1, 1))
    ones = np.ones(total // groups, dtype=np.float32)
    made = with_weights(Normalization(name=at.name, source=0, groups=groups, epsilon=float(epsilon)), [flat], ones)
    if weight is None and bias is None:
        return Value(made, given.view)
    scale = np.ones(channels, dtype=np.float32) if weight is None else array(weight)
    shift = np.zeros(channels, dtype=np.float32) if bias is None else array(bias)
    return Value(affine(at.name, shaped(made, (channels, 1, total // channels)), scale, shift), given.view)


def native_group_norm(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, weight: Any, bias: Any, images: Any, channels: int, positions: int, groups: int, epsilon: float
) -> Any:
    """Return a group norm; the statistics, its other results, are not computed."""
    return group_norm(at, x, groups, weight, bias, epsilon)


def instance_norm(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, own: bool, momentum: float, epsilon: float,
    cudnn: bool,
) -> Value | None:  # fmt: skip
    """Return a norm of each channel, with its own statistics or fixed ones."""
    if not is_value(x):
        return None
    if not own:
        return batch_norm(at, x, weight, bias, mean, variance, momentum, epsilon)
    return group_norm(at, x, x.sizes[1][1], weight, bias, epsilon)


def _without(x: Value, dims: Sequence[int], keep: bool) -> View:
    """Return the view of a result without some dimensions, or with a size of 1 there."""
    left = [() if d in dims else dim for d, dim in enumerate(x.view.dims) if keep or d not in dims]
    return View(tuple(left), x.view.offset)


def reduced(at: Place, x: Any, dims: Any = None, keep: bool = False, *options: Any, mode: str) -> Value | None:
    """Return the mean, the sum or the maximum along some dimensions, but not over the images."""
    if not is_value(x) or at.dtype != torch.float32:
        return None
    dims = list(range(x.rank)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else list(dims)
    dims = sorted(d % x.rank for d in dims)
    if any(BATCH in x.view.dims[d] for d in dims):
        return None
    count = prod(x.sizes[d][1] for d in dims)
    chosen = [key for key in x.view.keys if key[0] in dims]
    order = x.view.in_memory(x.view.keys)
    if mode != "max" and order[: len(chosen)] == sorted(chosen, key=order.index) and len(chosen) < len(order):
        return _summed(at, x, dims, keep, 1 / count if mode == "mean" else 1.0)
    others = [key for key in order if key not in chosen]
    order = others + [key for key in order if key in chosen]
    channels = prod(x.view.axis(key).size for key in others)
    usual = x.node.shape[0] == channels and prod(x.node.shape) == channels * count
    shape = x.node.shape if usual else (channels, 1, count)
    laid = Value(rearranged(x, order, shape), x.view.laid(order))
    pooling = AdaptivePooling(name=at.name, source=0, mode="max" if mode == "max" else "mean", size=(1, 1))
    made = node(pooling, [laid.node])
    kept = laid.view.dims  # what is left lies closer together
    apart = [tuple(axis if axis == BATCH else Axis(axis.size, axis.stride // count) for axis in dim) for dim in kept]
    result = Value(made, _without(Value(made, View(tuple(apart))), dims, keep))
    return scaled(at, result, count) if mode == "sum" else result


def vector_norm(
    at: Place, x: Any, order: float = 2, dims: Any = None, keep: bool = False, *options: Any, **more: Any
) -> Value | None:
    """Return the sum of absolute values, or the root of the sum of squares, along some dimensions."""
    if not is_value(x) or order not in (1, 2):
        return None
    inside = Place(at.name, x.sizes, at.dtype)
    total = reduced(at, activated(inside, x, Activation("square" if order == 2 else "abs")), dims, keep, mode="sum")
    return activated(at, total, Activation("sqrt")) if order == 2 else total


def running(at: Place, x: Any, dim: int, dtype: Any = None) -> Value | None:
    """Return the sums of all entries up to one, as a linear layer; integers if they are certain to be exact."""
    if not is_value(x) or BATCH in x.view.dims[dim % x.rank]:
        return None
    size = x.sizes[dim % x.rank][1]
    bound = size * bound_of(x)
    if at.dtype != torch.float32 and bound > EXACT:
        return None
    last = x.rank - 1
    turned = transpose(at, x, dim, last)
    made = transpose(at, linear(at, turned, torch.ones(size, size).tril()), dim, last)
    return None if made is None else replace(made, bound=int(min(bound, EXACT)))


def gathered(at: Place, x: Any, dim: int, indices: Any, **options: Any) -> Value | None:
    """Return entries of a known tensor that has the same number everywhere, such as types of tokens."""
    if not is_tensor(x) or not is_value(indices) or not bool((x == x.reshape(-1)[0]).all()):
        return None
    number = float(x.reshape(-1)[0])
    made = activated(Place(at.name, indices.sizes, torch.float32), indices, Activation("line", 0.0, number))
    return None if made is None else replace(made, bound=int(abs(number)))


def _summed(at: Place, x: Value, dims: Sequence[int], keep: bool, factor: float) -> Value:
    """Return the sum over the channels, as a linear layer with one output."""
    given = with_channels(x, dims)
    weights = np.full((1, given.node.shape[0], 1, 1), factor, dtype=np.float32)
    made = with_weights(Convolution(name=at.name, source=0, channels=1, kernel=(1, 1)), [given.node], weights)
    return Value(made, _without(given, dims, keep))
