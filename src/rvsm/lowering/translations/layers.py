"""Layers with weights, pooling, concatenation, and what changes the shape only."""

from collections.abc import Sequence
from typing import Any

import torch

from rvsm.lowering.draft import Node, affine, array, is_constant, is_node, is_spatial, node, pair, same, with_weights
from rvsm.runtime.plan.axes import AXES, channels_last
from rvsm.runtime.plan.operations import AdaptivePooling, Concatenation, Convolution, Flattening, Pooling


def conv(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Node | None:  # fmt: skip
    """Return a convolution of a map or a line; padding "same" of an even kernel becomes that of an odd one."""
    if not is_spatial(x) or not is_constant(weight) or not (bias is None or is_constant(bias)):
        return None
    if weight.ndim != len(x.axes) + 1:  # of an image without a batch
        return None
    weight = weight.reshape(*weight.shape[:2], *pair(weight.shape[2:], x))
    kernel, steps = (int(weight.shape[2]), int(weight.shape[3])), pair(dilation, x)
    if padding == "valid":
        padding = 0
    elif padding == "same":
        totals = [steps[k] * (kernel[k] - 1) for k in range(2)]
        if any(total % 2 for total in totals):  # one more at the right and below: a further tap of zeros evens it out
            if steps != (1, 1):
                return None
            weight = torch.nn.functional.pad(weight, (totals[1] % 2, 0, totals[0] % 2, 0))
            kernel = (int(weight.shape[2]), int(weight.shape[3]))
        padding = [-(-total // 2) for total in totals][-len(x.axes) + 1 :]
    operation = Convolution(
        name=name, source=0, channels=int(weight.shape[0]), kernel=kernel, stride=pair(stride, x),
        padding=pair(padding, x, 0), dilation=steps, groups=groups,
    )  # fmt: skip
    return with_weights(operation, x, weight, bias)


def linear(name: str, x: Any, weight: Any, bias: Any = None) -> Node | None:
    """Return a linear layer, which has the channels last, as a convolution of one tap."""
    if not is_node(x) or not x.axes.endswith("c") or not is_constant(weight) or not (bias is None or is_constant(bias)):
        return None
    operation = Convolution(name=name, source=0, channels=int(weight.shape[0]), kernel=(1, 1))
    return with_weights(operation, x, weight[:, :, None, None], bias)


def norm(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, epsilon: float
) -> Node | None:
    """Return a batch norm with fixed statistics, which has the channels first, as a convolution of one tap."""
    if (
        not is_node(x)
        or channels_last(x.axes)
        or not all(item is None or is_constant(item) for item in (weight, bias, mean, variance))
    ):
        return None
    deviation = (variance.double() + epsilon).rsqrt()
    scale = deviation if weight is None else weight.double() * deviation
    shift = -mean.double() * scale + (0 if bias is None else bias.double())
    return affine(name, x, array(scale), array(shift))


def batch_norm(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float,
    epsilon: float, cudnn: bool,
) -> Node | None:  # fmt: skip
    """Return a batch norm in eval mode."""
    return None if training else norm(name, x, weight, bias, mean, variance, momentum, epsilon)


def cat(name: str, parts: Sequence[Any], dim: int = 0) -> Node | None:
    """Return values side by side in their channels."""
    if not is_node(*parts) or len({part.axes for part in parts}) != 1:
        return None
    axes = parts[0].axes
    if dim % (len(axes) + 1) != axes.index("c") + 1:
        return None
    return node(Concatenation(name=name, parts=()), list(parts))


def max_pool(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Node | None:
    """Return the maxima of windows."""
    if not is_spatial(x):
        return None
    operation = Pooling(
        name=name, source=0, mode="max", kernel=pair(kernel, x), stride=pair(stride or kernel, x),
        padding=pair(padding, x, 0), dilation=pair(dilation, x), ceil=ceil,
    )  # fmt: skip
    return node(operation, [x])


def avg_pool(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, padded: bool = True,
    divisor: int | None = None,
) -> Node | None:  # fmt: skip
    """Return the means of windows."""
    if not is_spatial(x) or divisor is not None:
        return None
    operation = Pooling(
        name=name, source=0, mode="mean", kernel=pair(kernel, x), stride=pair(stride or kernel, x),
        padding=pair(padding, x, 0), ceil=ceil, padded=padded,
    )  # fmt: skip
    return node(operation, [x])


def adaptive(name: str, x: Any, size: Any, *, mode: str) -> Node | None:
    """Return a pooling to a given size."""
    return node(AdaptivePooling(name=name, source=0, mode=mode, size=pair(size, x)), [x]) if is_spatial(x) else None


def mean(name: str, x: Any, dims: Sequence[int] | None = None, keepdim: bool = False) -> Node | None:
    """Return the mean over all positions."""
    positions = [k for k, axis in enumerate(x.axes, start=1) if axis != "c"] if is_node(x) else []
    if not positions or dims is None or sorted(d % (len(x.axes) + 1) for d in dims) != positions:
        return None
    return node(AdaptivePooling(name=name, source=0, mode="mean", size=(1, 1)), [x])


def reshape(name: str, x: Any, *others: Any, **options: Any) -> Node | None:
    """Return a flattening; ``translate`` refuses it if that is not the shape that comes out."""
    if not is_node(x):
        return None
    if x.shape[1:] == (1, 1):
        return same(x)
    return None if channels_last(x.axes) else node(Flattening(name=name, source=0), [x])


def permute(name: str, x: Any, dims: Sequence[int]) -> Node | None:
    """Return the value with other axes, if there are such."""
    if not is_node(x) or dims[0] != 0:
        return None
    made = same(x)
    made.axes = "".join(x.axes[d % len(dims) - 1] for d in dims[1:])
    return made if made.axes in AXES else None


def transpose(name: str, x: Any, first: int, second: int) -> Node | None:
    """Return the value with two of its dimensions exchanged."""
    if not is_node(x):
        return None
    dims = list(range(len(x.axes) + 1))
    dims[first], dims[second] = dims[second], dims[first]
    return permute(name, x, dims)


def first(name: str, value: Any, index: int) -> Node | None:
    """Return the first of several results."""
    return same(value) if is_node(value) and index == 0 else None


def identity(name: str, x: Any, *others: Any, **options: Any) -> Node | None:
    """Return the value as it is."""
    return same(x) if is_node(x) else None
