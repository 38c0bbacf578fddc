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
from rvsm.lowering.views import BATCH, Axis, View


def _is_volume(x: Any) -> bool:
    return is_value(x) and x.rank == 5 and x.view.dims[0] == (BATCH,)


def _triple(value: int | Sequence[int]) -> tuple[int, ...]:
    numbers = [value] if isinstance(value, int) else list(value)
    return tuple(numbers * 3) if len(numbers) == 1 else tuple(numbers)


def _axis(size: int, stride: int) -> tuple[Axis, ...]:
    return (Axis(size, stride),) if size > 1 else ()


def conv(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Value | None:  # fmt: skip
    """Return a convolution of volumes, as one of planes whose channels come from several planes."""
    if not _is_volume(x) or not is_constant(weight) or weight.ndim != 5 or not (bias is None or is_constant(bias)):
        return None
    kernel, steps, gaps = tuple(weight.shape[2:]), _triple(stride), _triple(dilation)
    ends = _ends(padding, kernel, gaps)
    (_, channels), (_, depth), (_, height), (_, width) = x.sizes[1:]
    if kernel[1:] == steps[1:] == (1, 1) and ends[1:] == [(0, 0), (0, 0)] and ends[0][0] == ends[0][1]:
        flat = reshaped(x, [*x.sizes[:3], (False, height * width)])  # windows along the depth alone need no copies
        taps = weight.reshape(*weight.shape[:3], 1)
        made = layers.conv(at, flat, taps, bias, (steps[0], 1), (ends[0][0], 0), (gaps[0], 1), groups)
        return None if made is None else reshaped(made, at.sizes)
    high = -(-(height + sum(ends[1])) // steps[1]) * steps[1]  # rows of a plane, so that all have as many outputs
    sides, inside = ((0, 0), ends[2][0]) if ends[2][0] == ends[2][1] else (ends[2], 0)  # a map pads both sides alike
    padded = pad(at, x, [*sides, ends[1][0], high - height - ends[1][0], *ends[0]])
    if padded is None:
        return None
    deep, wide = depth + sum(ends[0]), width + sum(sides)
    (_, planes), (_, rows), (_, columns) = at.sizes[2:]
    overlapping = View((
        (BATCH,),
        _axis(channels, deep * high * wide) + _axis(kernel[0], gaps[0] * high * wide),
        _axis(planes, steps[0] * high * wide) + _axis(high, wide),
        _axis(wide, 1),
    ))  # fmt: skip
    taps = weight.reshape(len(weight), -1, *kernel[1:])
    given = Value(settled(padded).node, overlapping)
    made = layers.conv(at, given, taps, bias, steps[1:], (0, inside), gaps[1:], groups)
    if made is None:
        return None
    outputs, *positions = made.node.shape
    return Value(made.node, View((
        (BATCH,),
        _axis(outputs, prod(positions)),
        _axis(planes, high // steps[1] * columns),
        _axis(rows, columns),
        _axis(columns, 1),
    )))  # fmt: skip


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
    channels = int(weight.shape[1])
    shift = None if bias is None else bias.repeat_interleave(prod(kernel))
    last = Value(x.node, x.view.permuted([0, 2, 3, 4, 1]))
    made = layers.linear(at, last, weight.flatten(1).T, shift)
    if made is None:
        return None
    blocks = reshaped(made, [*made.sizes[:4], *((False, size) for size in (channels, *kernel))])
    if blocks is None:
        return None
    return reshaped(Value(blocks.node, blocks.view.permuted([0, 4, 1, 5, 2, 6, 3, 7])), at.sizes)


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
