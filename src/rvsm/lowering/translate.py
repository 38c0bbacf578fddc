"""From aten operations to operations of a plan; each translation is a function and a line in ``TRANSLATIONS``.

A translation returns a node, or None if it does not know the operation in this form: that one stays in PyTorch.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from rvsm.lowering.capture import module_name
from rvsm.lowering.draft import Floats, Node
from rvsm.runtime.activations import RELU, Activation
from rvsm.runtime.operations import (
    AdaptivePooling,
    Concatenation,
    Convolution,
    Flattening,
    Operation,
    Pair,
    Pointwise,
    Pooling,
    Shape,
)
from rvsm.runtime.plan import MAX_CHANNELS, MAX_POSITIONS, MAX_VALUE

Translation = Callable[..., Node | None]
aten = torch.ops.aten


def value_shape(node: fx.Node) -> tuple[Shape, bool] | None:
    """Return channels × height × width and whether a value is flat; None if it is not a float32 batch of such."""
    value = node.meta.get("val")
    if isinstance(value, tuple | list) and value and all(user.args[1:] == (0,) for user in node.users):
        value = value[0]  # of several results only the first is asked for
    if not isinstance(value, Tensor) or value.dtype != torch.float32 or value.device.type != "cpu":
        return None
    sizes = list(value.shape[1:])
    if value.ndim not in (2, 4) or not all(isinstance(size, int) for size in sizes):
        return None
    shape: Shape = (sizes[0], 1, 1) if value.ndim == 2 else (sizes[0], sizes[1], sizes[2])
    if min(shape) < 1 or shape[0] > MAX_CHANNELS or shape[1] * shape[2] > MAX_POSITIONS or math.prod(shape) > MAX_VALUE:
        return None
    return shape, value.ndim == 2


def translate(node: fx.Node, arguments: Sequence[Any], options: dict[str, Any]) -> Node | None:
    """Return a node for an aten operation; ``arguments`` have nodes and tensors in place of names."""
    known = TRANSLATIONS.get(node.target)
    shaped = value_shape(node)
    if known is None or shaped is None:
        return None
    try:
        made = known(module_name(node), *arguments, **options)
        if made is None:
            return None
        if made.operation is not None:
            made.operation.shape([source.shape for source in made.sources])
    except (
        TypeError,
        ValueError,
    ):  # a form of the operation that the runtime does not have, or a size beyond its limits
        return None
    same = made.shape == shaped[0]
    made.flat = shaped[1]
    return made if same else None


def same(source: Node) -> Node:
    """Return a node that stands for its source; it is removed with the others that do nothing."""
    return Node(Pointwise(name="identity", operation="none", a=0), [source], source.shape)


def _is_node(*values: Any) -> bool:
    return all(isinstance(value, Node) for value in values)


def _array(tensor: Tensor) -> Floats:
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float32, order="C")  # a copy: the model may train on


def _node(operation: Operation, sources: list[Node]) -> Node:
    return Node(operation, sources, operation.shape([source.shape for source in sources]))


def _pair(value: int | Sequence[int]) -> Pair:
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


def _weighted(operation: Convolution, source: Node, weights: Tensor | Floats, bias: Tensor | Floats | None) -> Node:
    node = _node(operation, [source])
    node.weights = _array(weights) if isinstance(weights, Tensor) else weights
    zero = np.zeros(operation.channels, dtype=np.float32)
    node.bias = zero if bias is None else _array(bias) if isinstance(bias, Tensor) else bias
    return node


def _conv(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Node | None:  # fmt: skip
    if not _is_node(x) or not _is_constant(weight) or not (bias is None or _is_constant(bias)):
        return None
    kernel, steps = (int(weight.shape[2]), int(weight.shape[3])), _pair(dilation)
    if padding == "valid":
        padding = 0
    elif padding == "same":
        totals = [steps[k] * (kernel[k] - 1) for k in range(2)]
        if any(total % 2 for total in totals):  # one more at the right and below: a further tap of zeros evens it out
            if steps != (1, 1):
                return None
            weight = torch.nn.functional.pad(weight, (totals[1] % 2, 0, totals[0] % 2, 0))
            kernel = (int(weight.shape[2]), int(weight.shape[3]))
        padding = [-(-total // 2) for total in totals]
    operation = Convolution(
        name=name, source=0, channels=int(weight.shape[0]), kernel=kernel, stride=_pair(stride),
        padding=_pair(padding), dilation=steps, groups=groups,
    )  # fmt: skip
    return _weighted(operation, x, weight, bias)


def _linear(name: str, x: Any, weight: Any, bias: Any = None) -> Node | None:
    if not _is_node(x) or not x.flat or not _is_constant(weight) or not (bias is None or _is_constant(bias)):
        return None
    operation = Convolution(name=name, source=0, channels=int(weight.shape[0]), kernel=(1, 1))
    return _weighted(operation, x, weight[:, :, None, None], bias)


def affine(name: str, x: Node, scale: Floats, shift: Floats) -> Node:
    """Return scale·x + shift, channel by channel, as a convolution of one tap."""
    channels = x.shape[0]
    operation = Convolution(name=name, source=0, channels=channels, kernel=(1, 1), groups=channels)
    return _weighted(operation, x, scale.reshape(-1, 1, 1, 1), shift)


def _norm(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, epsilon: float
) -> Node | None:
    if not _is_node(x) or not all(item is None or _is_constant(item) for item in (weight, bias, mean, variance)):
        return None
    deviation = (variance.double() + epsilon).rsqrt()
    scale = deviation if weight is None else weight.double() * deviation
    shift = -mean.double() * scale + (0 if bias is None else bias.double())
    return affine(name, x, _array(scale), _array(shift))


def _first(name: str, value: Any, index: int) -> Node | None:
    return same(value) if _is_node(value) and index == 0 else None


def _identity(name: str, x: Any, *others: Any, **options: Any) -> Node | None:
    return same(x) if _is_node(x) else None


def _activation(kind: str) -> Translation:
    def translation(name: str, x: Any) -> Node | None:
        return _activated(name, x, Activation(kind))

    return translation


def _activated(name: str, x: Any, activation: Activation) -> Node | None:
    if not _is_node(x):
        return None
    return _node(Pointwise(name=name, operation="none", a=0, activation=activation), [x])


def _relu(name: str, x: Any) -> Node | None:
    return _activated(name, x, RELU)


def _clamp(name: str, x: Any, low: Any = None, high: Any = None) -> Node | None:
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    if not all(isinstance(end, int | float) for end in ends):
        return None
    return _activated(name, x, Activation("clamp", float(ends[0]), float(ends[1])))


def _leaky(name: str, x: Any, slope: float = 0.01) -> Node | None:
    return _activated(name, x, Activation("leaky", slope))


def _gelu(name: str, x: Any, approximate: str = "none") -> Node | None:
    return _activated(name, x, Activation("gelu" if approximate == "none" else "gelu_tanh"))


def _is_constant(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _per_channel(value: Any, x: Node) -> Floats | None:
    """Return a number, or a tensor with one number for each channel of x, as a row."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return np.full(x.shape[0], value, dtype=np.float32)
    if not _is_constant(value):
        return None
    channels = (x.shape[0],) if x.flat else (x.shape[0], 1, 1)
    rank = len(channels) + 1
    if value.ndim > rank or (value.ndim == rank and value.shape[0] != 1):
        return None
    sizes = tuple(value.shape[1:]) if value.ndim == rank else tuple(value.shape)
    if math.prod(sizes) == 1:
        return np.full(x.shape[0], value.item(), dtype=np.float32)
    return _array(value).reshape(-1) if sizes == channels else None


def _two(operation: str) -> Translation:
    def translation(name: str, a: Any, b: Any, alpha: float = 1) -> Node | None:
        if alpha != 1 or not (_is_node(a) or _is_node(b)):
            return None
        if not _is_node(a, b):
            x, other = (a, b) if _is_node(a) else (b, a)
            row = _per_channel(other, x)
            if row is None:
                return None
            one, zero = np.ones_like(row), np.zeros_like(row)
            return affine(name, x, *((one, row) if operation == "add" else (row, zero)))
        if a.shape != b.shape and a.shape == (b.shape[0], 1, 1):
            a, b = b, a
        return _node(Pointwise(name=name, operation=operation, a=0, b=0), [a, b])

    return translation


def _minus(name: str, a: Any, b: Any, alpha: float = 1) -> Node | None:
    row = _per_channel(b, a) if _is_node(a) and alpha == 1 else None
    return None if row is None else affine(name, a, np.ones_like(row), -row)


def _divide(name: str, a: Any, b: Any) -> Node | None:
    row = _per_channel(b, a) if _is_node(a) else None
    return None if row is None else affine(name, a, np.float32(1) / row, np.zeros_like(row))


def _negative(name: str, x: Any) -> Node | None:
    minus = np.full(x.shape[0], -1, dtype=np.float32) if _is_node(x) else None
    return None if minus is None else affine(name, x, minus, np.zeros_like(minus))


def _cat(name: str, parts: Sequence[Any], dim: int = 0) -> Node | None:
    if not _is_node(*parts) or dim not in (1, -1 if parts[0].flat else -3):
        return None
    return _node(Concatenation(name=name, parts=()), list(parts))


def _max_pool(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Node | None:
    if not _is_node(x) or x.flat:
        return None
    operation = Pooling(
        name=name, source=0, mode="max", kernel=_pair(kernel), stride=_pair(stride or kernel), padding=_pair(padding),
        dilation=_pair(dilation), ceil=ceil,
    )  # fmt: skip
    return _node(operation, [x])


def _avg_pool(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, padded: bool = True,
    divisor: int | None = None,
) -> Node | None:  # fmt: skip
    if not _is_node(x) or x.flat or divisor is not None:
        return None
    operation = Pooling(
        name=name, source=0, mode="mean", kernel=_pair(kernel), stride=_pair(stride or kernel), padding=_pair(padding),
        ceil=ceil, padded=padded,
    )  # fmt: skip
    return _node(operation, [x])


def _adaptive(mode: str) -> Translation:
    def translation(name: str, x: Any, size: Any) -> Node | None:
        if not _is_node(x) or x.flat:
            return None
        return _node(AdaptivePooling(name=name, source=0, mode=mode, size=_pair(size)), [x])

    return translation


def _mean(name: str, x: Any, dims: Sequence[int] | None = None, keepdim: bool = False) -> Node | None:
    if not _is_node(x) or x.flat or dims is None or sorted(d % 4 for d in dims) != [2, 3]:
        return None
    return _node(AdaptivePooling(name=name, source=0, mode="mean", size=(1, 1)), [x])


def _reshape(name: str, x: Any, *others: Any, **options: Any) -> Node | None:
    """Return a flattening; ``translate`` refuses it if that is not the shape that comes out."""
    if not _is_node(x):
        return None
    return same(x) if x.shape[1:] == (1, 1) else _node(Flattening(name=name, source=0), [x])


TRANSLATIONS: dict[Any, Translation] = {
    operator.getitem: _first,
    aten.conv2d.default: _conv,
    aten.conv2d.padding: _conv,
    aten.linear.default: _linear,
    aten._native_batch_norm_legit_no_training.default: _norm,
    aten.relu.default: _relu,
    aten.relu6.default: lambda name, x: _clamp(name, x, 0.0, 6.0),
    aten.hardtanh.default: lambda name, x, low=-1.0, high=1.0: _clamp(name, x, low, high),
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.leaky_relu.default: _leaky,
    aten.gelu.default: _gelu,
    aten.silu.default: _activation("silu"),
    aten.hardswish.default: _activation("hardswish"),
    aten.hardsigmoid.default: _activation("hardsigmoid"),
    aten.sigmoid.default: _activation("sigmoid"),
    aten.tanh.default: _activation("tanh"),
    aten.add.Tensor: _two("add"),
    aten.add.Scalar: _two("add"),
    aten.mul.Tensor: _two("mul"),
    aten.mul.Scalar: _two("mul"),
    aten.sub.Tensor: _minus,
    aten.div.Tensor: _divide,
    aten.neg.default: _negative,
    aten.cat.default: _cat,
    aten.max_pool2d.default: _max_pool,
    aten.max_pool2d_with_indices.default: _max_pool,
    aten.avg_pool2d.default: _avg_pool,
    aten.adaptive_avg_pool2d.default: _adaptive("mean"),
    aten._adaptive_avg_pool2d.default: _adaptive("mean"),
    aten.mean.dim: _mean,
    aten.flatten.using_ints: _reshape,
    aten.view.default: _reshape,
    aten.reshape.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.squeeze.dims: _reshape,
    aten.squeeze.dim: _reshape,
    aten.unsqueeze.default: _reshape,
    aten.clone.default: _identity,
    aten.alias.default: _identity,
    aten.contiguous.default: _identity,
    aten.detach.default: _identity,
    aten.dropout.default: lambda name, x, p=0.5, train=False: None if train else _identity(name, x),
}
"""Which aten operation is translated by which function."""
