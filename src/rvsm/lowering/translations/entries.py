"""Entries of a dimension in another order, or several times: padding, rolls, flips, indices that are known."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rvsm.lowering.place import Place
from rvsm.lowering.translations.layers import linear
from rvsm.lowering.translations.shapes import cat, sliced, transpose
from rvsm.lowering.values import Value, constant, is_tensor, is_value
from rvsm.lowering.views import BATCH, Axis, View

MANY = 16  # views beside each other; more of them are a linear layer
NUMPY = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # its words for torch's modes of padding


def taken(at: Place, x: Value, dim: int, numbers: Sequence[int]) -> list[Value]:
    """Return entries of a dimension: views of those that are equal or at equal distances, if these are few.

    Otherwise, they are the result of a linear layer with a single weight for each.
    """
    runs: list[list[int]] = []
    for number in numbers:
        run = runs[-1] if runs else []
        if run and number >= run[-1] and (len(run) == 1 or number - run[-1] == run[1] - run[0]):
            run.append(number)
        else:
            runs.append([number])
    if len(runs) > MANY:
        rows = torch.eye(x.sizes[dim][1])[list(numbers)]
        parts = [transpose(at, linear(at, transpose(at, x, dim, -1), rows), dim, -1)]
    else:
        parts = [sliced(x, dim, run[0], len(run), run[1] - run[0] if len(run) > 1 else 1) for run in runs]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        raise ValueError("entries of images")
    return found


def joined(at: Place, parts: Sequence[Value], dim: int) -> Value | None:
    """Return one or several values side by side."""
    return parts[0] if len(parts) == 1 else cat(at, parts, dim)


def pad(at: Place, x: Any, pads: Sequence[int], value: float | None = 0.0, mode: str = "constant") -> Value | None:
    """Return a value with numbers around it: a constant, or its own numbers; negative counts cut off."""
    if not is_value(x) or mode not in ("constant", *NUMPY):
        return None
    result: Value | None = x
    for k in range(len(pads) // 2):
        before, after = pads[2 * k : 2 * k + 2]
        if result is not None and (before or after):
            fill = float(value or 0.0) if mode == "constant" else NUMPY[mode]
            result = _padded(at, result, x.rank - 1 - k, (before, after), fill)
    return result


def _padded(at: Place, x: Value, dim: int, ends: tuple[int, int], fill: float | str) -> Value | None:
    """Return a value with a number before and after it along one dimension, or with its own as NumPy has them."""
    if BATCH in x.view.dims[dim]:
        return None
    middle = sliced(x, dim, max(0, -ends[0]), x.sizes[dim][1] + min(0, ends[0]) + min(0, ends[1]))
    if middle is None:
        return None
    before, after = (max(0, end) for end in ends)
    if isinstance(fill, str):
        size = middle.sizes[dim][1]
        numbers = np.pad(np.arange(size), (before, after), fill).tolist()  # type: ignore[call-overload]
        first, last = (taken(at, middle, dim, part) for part in (numbers[:before], numbers[before + size :]))
        return joined(at, [*first, middle, *last], dim)

    def end(count: int) -> list[Value]:
        sizes = [count if d == dim else 1 if batched else size for d, (batched, size) in enumerate(x.sizes)]
        return [constant(at.name, torch.full(sizes, fill))] if count > 0 else []

    return joined(at, [*end(before), middle, *end(after)], dim)


def roll(at: Place, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value | None:
    """Return a value with its entries moved along some dimensions; those at the end begin again at the front."""
    if not is_value(x) or len(shifts) != len(dims):
        return None
    result: Value | None = x
    for shift, dim in zip(shifts, dims, strict=True):
        result = _chosen(at, result, dim, np.roll(range(x.sizes[dim][1]), shift).tolist())
    return result


def flip(at: Place, x: Any, dims: Sequence[int]) -> Value | None:
    """Return a value with the entries of some dimensions in the opposite order."""
    result: Value | None = x
    for dim in dims:
        result = _chosen(at, result, dim, range(x.sizes[dim][1])[::-1])
    return result


def index_select(at: Place, x: Any, dim: int, numbers: Any) -> Value | None:
    """Return entries of a dimension whose numbers are known."""
    return _chosen(at, x, dim, numbers.reshape(-1).tolist()) if is_tensor(numbers) else None


def _chosen(at: Place, x: Any, dim: int, numbers: Sequence[int]) -> Value | None:
    if not is_value(x) or BATCH in x.view.dims[dim] or not numbers:
        return None
    return joined(at, taken(at, x, dim % x.rank, numbers), dim)


class ImageNumbers:
    """The numbers of the images, 0 to the batch size, along one of several dimensions."""

    def __init__(self, rank: int, dim: int) -> None:
        self.rank, self.dim = rank, dim


def index(at: Place, x: Any, indices: Sequence[Any]) -> Value | None:
    """Return entries whose numbers are known: of one dimension, or, for each image, of all as masks are read."""
    chosen = [d for d, given in enumerate(indices) if given is not None]
    if is_value(x) and len(chosen) == 1 and is_tensor(given := indices[chosen[0]]) and given.ndim == 1:
        return None if given.dtype == torch.bool else index_select(at, x, chosen[0], given % x.sizes[chosen[0]][1])
    if not is_value(x) or len(indices) != x.rank:
        return None
    rank, offset = len(at.sizes), x.view.offset
    dims: list[tuple[Axis, ...]] = [()] * rank
    for axes, given in zip(x.view.dims, indices, strict=True):
        if isinstance(given, ImageNumbers):
            place, start, taken = rank - given.rank + given.dim, 0, axes
            if axes != (BATCH,):
                return None
        else:
            place, start, taken = _progression(axes, given, rank)
        offset += start
        if taken and dims[place]:
            raise ValueError("two indices along one dimension")
        dims[place] = taken or dims[place]
    return Value(x.node, View(tuple(dims), offset), x.dtype)


def _progression(axes: tuple[Axis, ...], given: Any, rank: int) -> tuple[int, int, tuple[Axis, ...]]:
    """Return the dimension of the result along which known indices run, where they begin, and their axis."""
    if not is_tensor(given) or BATCH in axes or len(axes) > 1:
        raise ValueError("indices that are not known")
    size, stride = axes[0] if axes else Axis(1, 0)
    numbers = given.reshape(-1).tolist()
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    long = [d for d, length in enumerate(given.shape) if length > 1]
    if len(long) > 1 or step < 1 or numbers != list(range(numbers[0], numbers[-1] + 1, step)):
        raise ValueError("indices at different distances")
    if not 0 <= numbers[0] <= numbers[-1] < size:
        raise ValueError("indices outside of a dimension")
    if not long:
        return 0, numbers[0] * stride, ()
    return rank - given.ndim + long[0], numbers[0] * stride, (Axis(len(numbers), step * stride),)
