"""Convolutions, linear layers and batch norm."""

from typing import Any

import torch

from rvsm.lowering.draft import Node, affine, array, is_constant, is_node, is_spatial, pair, with_weights
from rvsm.runtime.plan import Convolution
from rvsm.runtime.plan.axes import channels_last


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
