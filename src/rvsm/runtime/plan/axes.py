"""Axes: which sizes of an array are the channels, rows and columns of a map.

The axes of one image are named in the order of the array; a size without a name is 1. ``chw`` is a map, ``c`` a vector
of features, ``cw`` a line of positions; ``hwc`` and ``wc`` are maps and lines with the channels last, as linear layers
have them. Inside a program all values are maps; axes only matter for inputs and outputs.
"""

import sys
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.plan.operation import Shape

MAP = "chw"
AXES = (MAP, "cw", "c", "hwc", "wc")
MAX_DIMENSIONS = 8  # of an array, without the batch
EXACT = 1 << 24  # integers up to this one are float32 numbers


def channels_last(axes: str) -> bool:
    """Return whether the channels of a position are adjacent, rather than the positions of a channel."""
    return not axes.startswith("c")


def sizes_of(axes: str, shape: Shape) -> tuple[int, ...]:
    """Return the sizes of an array that holds a map of this shape.

    >>> sizes_of("wc", (8, 1, 5))
    (5, 8)
    """
    return tuple(shape[MAP.index(axis)] for axis in axes)


def shape_of(axes: str, sizes: tuple[int, ...]) -> Shape:
    """Return channels, height and width of an array of these sizes.

    >>> shape_of("wc", (5, 8))
    (8, 1, 5)
    """
    named = dict(zip(axes, sizes, strict=True))
    return named["c"], named.get("h", 1), named.get("w", 1)


def check_axes(axes: object, shape: Shape, subject: str, sizes: tuple[int, ...] | None = None) -> None:
    """Raise ValueError if there are no such axes, or if a map of this shape cannot have them, or these ``sizes``."""
    if sizes is not None and (len(sizes) > MAX_DIMENSIONS or prod(sizes) != prod(shape)):
        raise ValueError(f"{subject} of shape {shape} cannot have the sizes {sizes!r:.80}")
    if not isinstance(axes, str) or axes not in AXES:
        raise ValueError(f"the form of {subject} must be one of {', '.join(AXES)} but is {axes!r:.20}")
    if shape_of(axes, sizes_of(axes, shape)) != shape:
        raise ValueError(
            f"{subject} of shape {shape} cannot have the form {axes!r}: sizes that the form leaves out must be 1"
        )


def batch_array(x: Any, expected: tuple[int, ...], *, integer: bool = False) -> NDArray[np.float32]:
    """Return a NumPy or torch batch as contiguous float32, after checking its sizes; integers must stay exact."""
    array = _as_array(x, integer) if is_tensor(x) else np.asarray(x)
    if array.dtype.kind not in ("iub" if integer else "fiub"):
        kind = "integers" if integer else "numbers"
        raise TypeError(f"the input must hold {kind} but has dtype {array.dtype}")
    if array.ndim != len(expected) + 1 or array.shape[1:] != expected:
        sizes = ", ".join(["batch", *map(str, expected)])
        raise ValueError(f"the input must have the shape ({sizes}) but has {array.shape}")
    if integer and array.dtype.itemsize > 2 and array.size and not -EXACT <= array.min() <= array.max() <= EXACT:
        raise ValueError(
            f"integers in the input must be from {-EXACT} to {EXACT} but are from {array.min()} to {array.max()}"
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def _as_array(x: Any, integer: bool) -> NDArray[Any]:
    """Return a tensor as an array, in float32 unless integers are expected."""
    if x.requires_grad or not x.is_cpu:
        x = x.detach().cpu()
    array: NDArray[Any] = (x if integer else x.float()).numpy()
    return array


def in_order(inputs: Sequence[Any], named: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """Return inputs in the order of their names, of which the first may be given without.

    >>> in_order([1], {"c": 3, "b": 2}, ["a", "b", "c"])
    [1, 2, 3]
    """
    wanted = [name for name in names[len(inputs) :] if name]
    if named and set(named) != set(wanted):
        raise TypeError(
            f"the inputs {', '.join(wanted) or 'without names'} are expected but {', '.join(named)} are given"
        )
    return [*inputs, *(named[name] for name in wanted if named)]


def batch_size(inputs: Sequence[Any]) -> int:
    """Return the number of images, after checking that it is the same for all inputs."""
    sizes = [len(x) for x in inputs]
    if len(set(sizes)) > 1:
        raise ValueError(f"all inputs must have the same batch size but have {sizes}")
    return sizes[0]


def like(array: NDArray[np.float32], example: Any) -> Any:
    """Return ``array`` as a torch tensor if ``example`` is one."""
    return sys.modules["torch"].from_numpy(array) if is_tensor(example) else array


def is_tensor(x: object) -> bool:
    """Return whether ``x`` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)
