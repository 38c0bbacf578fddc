"""Layers with weights, and pooling."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from rvsm.lowering.draft import Node, affine, array, is_constant, node, with_weights
from rvsm.lowering.place import Place
from rvsm.lowering.values import Value, as_map, is_value, of_map, replaced, settled, with_channels
from rvsm.lowering.views import Axis, View, merged
from rvsm.runtime.plan.operation import Pair
from rvsm.runtime.plan.operations import AdaptivePooling, Convolution, Pooling
from rvsm.runtime.plan.tensors import Embedding


def pair(value: int | Sequence[int], x: Value, usual: int = 1) -> Pair:
    """Return a number, or a list of one or two, as height and width; a line's height has what is ``usual``."""
    numbers = [value] if isinstance(value, int) else list(value)
    if x.rank == 3:
        (width,) = numbers
        return usual, width
    return (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _map(x: Any) -> Value | None:
    return as_map(x) if is_value(x) else None


def conv(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Value | None:  # fmt: skip
    """Return a convolution of a map or a line; padding "same" of an even kernel becomes that of an odd one."""
    given = _map(x)
    if given is None or not is_constant(weight) or not (bias is None or is_constant(bias)) or weight.ndim != given.rank:
        return None
    weight = weight.reshape(*weight.shape[:2], *pair(weight.shape[2:], given))
    kernel, steps = (int(weight.shape[2]), int(weight.shape[3])), pair(dilation, given)
    if padding == "valid":
        padding = 0
    elif padding == "same":
        totals = [steps[k] * (kernel[k] - 1) for k in range(2)]
        if any(total % 2 for total in totals):  # one more at the right and below: a further tap of zeros evens it out
            if steps != (1, 1):
                return None
            weight = torch.nn.functional.pad(weight, (totals[1] % 2, 0, totals[0] % 2, 0))
            kernel = (int(weight.shape[2]), int(weight.shape[3]))
        padding = [-(-total // 2) for total in totals][-given.rank + 2 :]
    operation = Convolution(
        name=at.name, source=0, channels=int(weight.shape[0]), kernel=kernel, stride=pair(stride, given),
        padding=pair(padding, given, 0), dilation=steps, groups=groups,
    )  # fmt: skip
    made = with_weights(operation, [given.node], array(weight), None if bias is None else array(bias))
    return of_map(made, given)


def transposed_conv(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Value | None:  # fmt: skip
    """Return a transposed convolution: one convolution for each phase of the stride, whose results are interleaved."""
    given = _map(x)
    if given is None or not is_constant(weight) or not (bias is None or is_constant(bias)) or weight.ndim != given.rank:
        return None
    weight = weight.reshape(*weight.shape[:2], *pair(weight.shape[2:], given))
    steps, gaps, pads = pair(stride, given), pair(dilation, given), pair(padding, given, 0)
    sizes = [size for _, size in at.sizes[2:]]
    outputs = (1, sizes[0]) if given.rank == 3 else (sizes[0], sizes[1])
    # Output s·q + r takes the input q + j at the tap k with gap·k = r + pad − s·j: for each phase r, a plain
    # convolution with the taps at some j, from −reach to reach.
    reach = [max(gaps[d] * (int(weight.shape[2 + d]) - 1), pads[d]) // steps[d] + 1 for d in range(2)]
    counts = [-(-outputs[d] // steps[d]) for d in range(2)]
    inside, channels = int(weight.shape[0]) // groups, int(weight.shape[1]) * groups
    grouped = array(weight).reshape(groups, inside, -1, *weight.shape[2:]).transpose(0, 2, 1, 3, 4)
    dense = grouped.reshape(channels, inside, *weight.shape[2:])
    taps = np.zeros((channels, *steps, inside, *(2 * r + 1 for r in reach)), dtype=np.float32)
    for down in _taps(steps[0], gaps[0], pads[0], reach[0], int(weight.shape[2])):
        for right in _taps(steps[1], gaps[1], pads[1], reach[1], int(weight.shape[3])):
            taps[:, down[0], right[0], :, down[1], right[1]] = dense[:, :, down[2], right[2]]
    kernel = (2 * reach[0] + 1, 2 * reach[1] + 1)
    # More padding than the taps need gives more outputs, before the first one as well, which are cut off.
    more = [max(0, counts[d] - given.node.shape[1 + d]) for d in range(2)]
    operation = Convolution(
        name=at.name, source=0, channels=channels * prod(steps), kernel=kernel, groups=groups,
        padding=(reach[0] + more[0], reach[1] + more[1]),
    )  # fmt: skip
    shift = None if bias is None else np.repeat(array(bias), prod(steps))
    made = with_weights(operation, [given.node], taps.reshape(-1, inside, *kernel), shift)
    _, height, width = made.shape
    phases = [(True, 1), (False, channels), (False, steps[0]), (False, steps[1]), (False, height), (False, width)]
    view = View.dense(phases).permuted([0, 1, 4, 2, 5, 3])
    rows, columns = (*view.dims[2], *view.dims[3]), (*view.dims[4], *view.dims[5])
    whole = settled(Value(made, View((*view.dims[:2], rows, columns))))
    cut = whole.view.sliced(2, more[0] * steps[0], outputs[0])
    cut = None if cut is None else cut.sliced(3, more[1] * steps[1], outputs[1])
    if cut is None:
        return None
    return Value(whole.node, cut if given.rank == 4 else View((cut.dims[0], cut.dims[1], cut.dims[3]), cut.offset))


def _taps(step: int, gap: int, pad: int, reach: int, kernel: int) -> list[tuple[int, int, int]]:
    """Return the phase, the place in the new kernel, and the tap, for each tap of a transposed convolution."""
    found = []
    for k in range(kernel):
        phase = (gap * k - pad) % step
        found.append((phase, reach - (gap * k - pad - phase) // step, k))
    return found


def linear(at: Place, x: Any, weight: Any, bias: Any = None) -> Value | None:
    """Return a linear layer on the last dimension, as a convolution of one tap."""
    if not is_value(x) or not is_constant(weight) or weight.ndim != 2 or not (bias is None or is_constant(bias)):
        return None
    last = x.rank - 1
    given = with_channels(x, [last])
    operation = Convolution(name=at.name, source=0, channels=int(weight.shape[0]), kernel=(1, 1))
    taps = array(weight)[:, :, None, None]
    made = with_weights(operation, [given.node], taps, None if bias is None else array(bias))
    return replaced(given, made, last, int(weight.shape[0]))


def addmm(at: Place, bias: Any, x: Any, weight: Any, *, beta: float = 1, alpha: float = 1) -> Value | None:
    """Return bias + x · weight, where the last two are known."""
    known = is_constant(bias) and is_constant(weight) and bias.ndim == 1 and beta == alpha == 1
    return linear(at, x, weight.T, bias.expand(weight.shape[1])) if known else None


def norm(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, epsilon: float
) -> Value | None:
    """Return a batch norm with fixed statistics, of the second dimension, as a convolution of one tap."""
    if not is_value(x) or x.rank < 2 or not all(t is None or is_constant(t) for t in (weight, bias, mean, variance)):
        return None
    channels, *positions = x.node.shape
    own = x.most and merged(x.view.dims[1]) == merged([Axis(channels, prod(positions))])
    given = x if own else with_channels(x, [1])
    deviation = (variance.double() + epsilon).rsqrt()
    scale = deviation if weight is None else weight.double() * deviation
    shift = -mean.double() * scale + (0 if bias is None else bias.double())
    return Value(affine(at.name, given.node, array(scale), array(shift)), given.view)


def batch_norm(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float,
    epsilon: float, cudnn: bool,
) -> Value | None:  # fmt: skip
    """Return a batch norm in eval mode."""
    return None if training else norm(at, x, weight, bias, mean, variance, momentum, epsilon)


def embedding(at: Place, table: Any, numbers: Any, *options: Any) -> Value | None:
    """Return the rows of a table; the numbers of rows are checked in each call."""
    if not is_value(numbers) or not is_constant(table) or numbers.dtype not in (torch.int64, torch.int32):
        return None
    order = numbers.view.in_memory(numbers.view.keys)
    given = settled(numbers, order)
    rows, features = (int(size) for size in table.shape)
    made = with_weights(Embedding(name=at.name, source=0, rows=rows, features=features), [given.node], array(table))
    last = (Axis(features, made.shape[2]),) if features > 1 else ()
    return Value(made, View((*given.view.dims, last)))


def max_pool(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value | None:
    """Return the maxima of windows."""
    given = _map(x)
    if given is None:
        return None
    operation = Pooling(
        name=at.name, source=0, mode="max", kernel=pair(kernel, given), stride=pair(stride or kernel, given),
        padding=pair(padding, given, 0), dilation=pair(dilation, given), ceil=ceil,
    )  # fmt: skip
    return of_map(node(operation, [given.node]), given)


def avg_pool(  # noqa: PLR0917 - aten's own order
    at: Place, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, padded: bool = True,
    divisor: int | None = None,
) -> Value | None:  # fmt: skip
    """Return the means of windows."""
    given = _map(x)
    if given is None or divisor is not None:
        return None
    operation = Pooling(
        name=at.name, source=0, mode="mean", kernel=pair(kernel, given), stride=pair(stride or kernel, given),
        padding=pair(padding, given, 0), ceil=ceil, padded=padded,
    )  # fmt: skip
    return of_map(node(operation, [given.node]), given)


def adaptive(at: Place, x: Any, size: Any, *, mode: str) -> Value | None:
    """Return a pooling to a given size."""
    given = _map(x)
    if given is None:
        return None
    made: Node = node(AdaptivePooling(name=at.name, source=0, mode=mode, size=pair(size, given)), [given.node])
    return of_map(made, given)
