"""Volumes: layers of depth, height and width, made of those of maps.

A map has two axes of positions. Windows of planes take depth and height as rows: the planes lie below each other, with
the zeros of the padding between them, so that no window reaches from one into the next. What a window takes from
several planes are further input channels: the same numbers, as a view with overlapping planes. Rows at the end of a
plane, where windows would reach into the next one, are computed and not read.

The maxima and means of windows in three dimensions are those of planes, then those along the depth.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from rvsm.lowering.draft import is_constant
from rvsm.lowering.place import Place
from rvsm.lowering.translations import layers
from rvsm.lowering.translations.entries import pad
from rvsm.lowering.values import Value, is_value, reshaped, settled
from rvsm.lowering.views import BATCH, Axis, Size, View


def _is_volume(x: Any) -> bool:
    return is_value(x) and x.rank == 5 and x.view.dims[0] == (BATCH,)


def _triple(value: int | Sequence[int]) -> tuple[int, ...]:
    numbers = [value] if isinstance(value, int) else list(value)
    return tuple(numbers * 3) if len(numbers) == 1 else tuple(numbers)


def _axis(size: int, stride: int) -> tuple[Axis, ...]:
    return (Axis(size, stride),) if size > 1 else ()


def _flat(x: Value, *groups: int) -> Value | None:
    """Return a value with neighbouring dimensions joined; the groups are the numbers of dimensions."""
    sizes: list[Size] = []
    start = 1
    for count in groups:
        sizes.append((False, prod(size for _, size in x.sizes[start : start + count])))
        start += count
    return reshaped(x, [x.sizes[0], *sizes])


def conv(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Value | None:  # fmt: skip
    """Return a convolution of volumes, as one of planes whose channels come from several planes."""
    if not _is_volume(x) or not is_constant(weight) or weight.ndim != 5 or not (bias is None or is_constant(bias)):
        return None
    kernel, steps, gaps = tuple(weight.shape[2:]), _triple(stride), _triple(dilation)
    ends = _ends(padding, kernel, gaps)
    if kernel[1:] == steps[1:] == (1, 1) and ends[1:] == [(0, 0), (0, 0)] and ends[0][0] == ends[0][1]:
        rows = _flat(x, 1, 1, 2)  # windows along the depth alone need no copies
        taps = weight.reshape(*weight.shape[:3], 1)
        made = layers.conv(at, rows, taps, bias, (steps[0], 1), (ends[0][0], 0), (gaps[0], 1), groups)
        return None if made is None else reshaped(made, at.sizes)
    (_, channels), (_, depth), (_, height), (_, width) = x.sizes[1:]
    rows_of_plane = -(-(height + sum(ends[1])) // steps[1]) * steps[1]  # so that each plane has as many outputs
    below = rows_of_plane - height - ends[1][0]
    beside = ends[2] if ends[2][0] != ends[2][1] else (0, 0)
    padded = pad(at, x, [*beside, ends[1][0], below, *ends[0]])
    if padded is None:
        return None
    depth, width = depth + sum(ends[0]), width + sum(beside)
    plane = rows_of_plane * width
    (_, planes), (_, rows), (_, columns) = at.sizes[2:]
    overlapping = View((
        (BATCH,),
        _axis(channels, depth * plane) + _axis(kernel[0], gaps[0] * plane),
        _axis(planes, steps[0] * plane) + _axis(rows_of_plane, width),
        _axis(width, 1),
    ))  # fmt: skip
    taps = weight.reshape(weight.shape[0], -1, *kernel[1:])
    inside = (0, ends[2][0] if beside == (0, 0) else 0)
    made = layers.conv(
        at, Value(settled(padded).node, overlapping), taps, bias, steps[1:], inside, gaps[1:], groups
    )  # fmt: skip
    if made is None:
        return None
    _, *shape = made.node.shape
    dims = [
        _axis(int(weight.shape[0]), prod(shape)),
        _axis(planes, rows_of_plane // steps[1] * columns),
        _axis(rows, columns),
        _axis(columns, 1),
    ]
    return Value(made.node, View(((BATCH,), *dims)))


def _ends(padding: Any, kernel: Sequence[int], gaps: Sequence[int]) -> list[tuple[int, int]]:
    """Return how many zeros come before and after each axis."""
    if padding == "same":
        totals = [gap * (size - 1) for size, gap in zip(kernel, gaps, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(count, count) for count in _triple(0 if padding == "valid" else padding)]


def transposed_conv(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Value | None:  # fmt: skip
    """Return a transposed convolution whose windows lie side by side: each number becomes a block of numbers."""
    if not _is_volume(x) or not is_constant(weight) or not (bias is None or is_constant(bias)):
        return None
    kernel = tuple(weight.shape[2:])
    if kernel != _triple(stride) or groups != 1 or any((*_triple(padding), *_triple(output_padding))):
        return None
    if any(size > 1 and gap > 1 for size, gap in zip(kernel, _triple(dilation), strict=True)):
        return None
    channels, depth, height, width = (int(weight.shape[1]), *(size for _, size in x.sizes[2:]))
    matrix = weight.flatten(1).T  # channels, then places of the block
    shift = None if bias is None else bias.repeat_interleave(prod(kernel))
    last = Value(x.node, x.view.permuted([0, 2, 3, 4, 1]))
    made = layers.linear(at, last, matrix, shift)
    if made is None:
        return None
    sizes = [(False, size) for size in (depth, height, width, channels, *kernel)]
    blocks = reshaped(made, [x.sizes[0], *sizes])
    return None if blocks is None else reshaped(
        Value(blocks.node, blocks.view.permuted([0, 4, 1, 5, 2, 6, 3, 7])), at.sizes
    )  # fmt: skip


def _pooled(at: Place, x: Any, planes: Sequence[Any], along: Sequence[Any], pool: Callable[..., Any]) -> Value | None:
    """Return a pooling of planes, then one along the depth, each with its own arguments."""
    if not _is_volume(x):
        return None
    flat = reshaped(x, [x.sizes[0], (False, x.sizes[1][1] * x.sizes[2][1]), *x.sizes[3:]])
    made = None if flat is None else pool(at, flat, *planes)
    if made is None:
        return None
    deep = reshaped(made, [x.sizes[0], *x.sizes[1:3], (False, prod(size for _, size in made.sizes[2:]))])
    made = None if deep is None else pool(at, deep, *along)
    return None if made is None else reshaped(made, at.sizes)


def max_pool(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value | None:
    """Return the maxima of windows."""
    sizes, steps, pads, gaps = map(_triple, (kernel, stride or kernel, padding, dilation))
    planes = (sizes[1:], steps[1:], pads[1:], gaps[1:], ceil)
    return _pooled(at, x, planes, ((sizes[0], 1), (steps[0], 1), (pads[0], 0), (gaps[0], 1), ceil), layers.max_pool)


def avg_pool(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, padded: bool = True,
    divisor: int | None = None,
) -> Value | None:  # fmt: skip
    """Return the means of windows."""
    sizes, steps, pads = map(_triple, (kernel, stride or kernel, padding))
    planes = (sizes[1:], steps[1:], pads[1:], ceil, padded, divisor)
    along = ((sizes[0], 1), (steps[0], 1), (pads[0], 0), ceil, padded, divisor)
    return _pooled(at, x, planes, along, layers.avg_pool)


def adaptive(at: Place, x: Any, size: Any, *, mode: str) -> Value | None:
    """Return a pooling to a given size."""
    _, _, (_, depth), (_, height), (_, width) = at.sizes

    def pool(at: Place, part: Value, size: Sequence[int]) -> Value | None:
        return layers.adaptive(at, part, size, mode=mode)

    return _pooled(at, x, [(height, width)], [(depth, height * width)], pool)
