"""How a file stores the non-zero values of a layer: as float32, as bfloat16, or as 8-bit integers with scales."""

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.plan.plan import Weights

Values = Literal["float32", "bfloat16", "int8"]
"""How values are stored; the runtime computes with float32 in any case."""

TYPES: Mapping[Values, Any] = {"float32": np.float32, "bfloat16": np.uint16, "int8": np.int8}
"""The arrays in the file; NumPy has no bfloat16, so these are the upper 16 bits of float32 as integers."""

_LARGEST = np.float32(127)


def stored(weights: Weights, values: Values) -> dict[str, NDArray[Any]]:
    """Return the arrays for the file.

    Integers have one scale for each index of the first axis, which is that of the outputs: the largest magnitude there
    becomes 127. A value that rounds to zero leaves the mask.

    >>> weights = Weights.of(np.array([[1.0, -0.5], [0.0, 1e-3]], dtype=np.float32))
    >>> arrays = stored(weights, "int8")
    >>> arrays["values"].tolist()
    [127, -64, 127]
    >>> print(restored(weights.shape, arrays).dense().round(4))
    [[ 1.     -0.5039]
     [ 0.      0.001 ]]
    """
    if values == "float32":
        return {"bits": weights.bits, "values": weights.values}
    if not np.isfinite(weights.values).all():
        raise ValueError(f"weights that are not finite can be stored as float32 only, not as {values}")
    places = _places(weights.bits, weights.shape)
    if values == "bfloat16":
        # The nearest; of two that are equally near, the one whose last bit is zero.
        bits = weights.values.view(np.uint32)
        short: NDArray[Any] = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
        scales = {}
        kept = short & 0x7FFF != 0
    else:
        rows = places // _row(weights.shape)
        largest = np.zeros(weights.shape[0], dtype=np.float32)
        np.maximum.at(largest, rows, np.abs(weights.values))
        # The smallest normal number, so that nothing is divided by zero.
        scales = {"scales": np.maximum(largest / _LARGEST, np.finfo(np.float32).tiny)}
        short = np.rint(weights.values / scales["scales"][rows]).astype(np.int8)
        kept = short != 0
    mask = np.zeros(prod(weights.shape), dtype=np.bool_)
    mask[places[kept]] = True
    return {"bits": np.packbits(mask), "values": short[kept], **scales}


def restored(shape: tuple[int, ...], arrays: Mapping[str, NDArray[Any]]) -> Weights:
    """Return the weights in the arrays that ``stored`` has made; nothing is trusted."""
    bits, values, scales = arrays["bits"], arrays["values"], arrays.get("scales")
    if (scales is not None) != (values.dtype == np.int8) or values.ndim != 1:
        raise ValueError(f"values of type {values.dtype} do not fit {'no' if scales is None else 'their'} scales")
    if values.dtype == np.uint16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    elif scales is not None:
        if scales.dtype != np.float32 or scales.shape != shape[:1] or not (np.isfinite(scales) & (scales > 0)).all():
            raise ValueError(
                f"there must be {shape[0]} positive float32 scales but there are {scales.dtype} {scales.shape}"
            )
        Weights(shape, bits, values.astype(np.float32))  # checks the mask before it says which scale belongs to a value
        values = values.astype(np.float32) * scales[_places(bits, shape) // _row(shape)]
    return Weights(shape, bits, values)


def _places(bits: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.intp]:
    return np.flatnonzero(np.unpackbits(bits, count=prod(shape)))


def _row(shape: tuple[int, ...]) -> int:
    return prod(shape[1:])
