"""Upsampling: each row of the result is a weighted sum of few rows, and so is each column.

A linear map along one dimension, with few weights that are not zero, is a sparse layer: no kernel is needed.
"""

from typing import Any

import torch
from torch.nn import functional

from rvsm.lowering.place import Place
from rvsm.lowering.translations.layers import linear
from rvsm.lowering.translations.shapes import transpose
from rvsm.lowering.values import Value, is_value, settled
from rvsm.lowering.views import Axis, View


def upsample(at: Place, x: Any, *others: Any, mode: str, align: bool | None = None) -> Value | None:
    """Return a line, a map or a volume of another size; the weights are those that PyTorch uses for unit vectors."""
    if not is_value(x) or x.rank not in (3, 4, 5):
        return None
    _, *scales = others  # the sizes are those of the result
    if mode != "nearest":
        align, *scales = scales
    factors = _factors(scales, x.rank - 2)
    result: Value | None = x
    for d in range(2, x.rank):
        inputs, outputs = x.sizes[d][1], at.sizes[d][1]
        if result is None or inputs == outputs:
            continue
        if mode == "nearest" and outputs % inputs == 0 and (factors is None or factors[d - 2] == outputs / inputs):
            result = _repeated(result, d, outputs // inputs)
            continue
        weights = _weights(inputs, outputs, None if factors is None else factors[d - 2], mode, align)
        if weights is None:
            return None
        sizes = list(result.sizes)
        sizes[d] = (False, outputs)
        here = Place(at.name, sizes, at.dtype)
        turned = transpose(here, result, d, x.rank - 1)
        result = transpose(here, linear(here, turned, weights), d, x.rank - 1)
    return result


def _factors(scales: list[Any], count: int) -> list[float] | None:
    """Return the factors that are used instead of the ratio of sizes, if they are given."""
    given = scales[0] if len(scales) == 1 and isinstance(scales[0], list | tuple) else scales
    found = [factor for factor in given if factor is not None]
    return [float(factor) for factor in found] if len(found) == count else None


def _repeated(x: Value, dim: int, times: int) -> Value:
    dims = list(x.view.dims)
    dims[dim] = (*dims[dim], Axis(times, 0))
    made = Value(x.node, View(tuple(dims), x.view.offset), x.dtype)
    return made if made.movable else _repeated(settled(x), dim, times)


def _weights(inputs: int, outputs: int, factor: float | None, mode: str, align: bool | None) -> torch.Tensor | None:
    """Return the matrix of an upsampling of one dimension."""
    unit = torch.eye(inputs)[None, :, :, None]  # one channel for each input
    made = functional.interpolate(
        unit,
        size=(outputs, 1) if factor is None else None,
        scale_factor=None if factor is None else (factor, 1.0),
        mode={"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode),
        align_corners=align,
    )
    return made[0, :, :, 0].T.contiguous() if made.shape[2] == outputs else None
