"""From aten operations to operations of a plan; each translation is a function and a line in ``TRANSLATIONS``.

A translation returns a node, or None if it does not know the operation in this form: that one stays in PyTorch.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from rvsm.lowering.capture import module_name
from rvsm.lowering.draft import Node
from rvsm.lowering.translations import layers, pointwise
from rvsm.runtime.plan.axes import AXES, axes_of, channels_last, shape_of
from rvsm.runtime.plan.operation import Shape
from rvsm.runtime.plan.plan import check_shape

Translation = Callable[..., Node | None]
aten = torch.ops.aten


def value_sizes(node: fx.Node, batch: int | torch.SymInt) -> tuple[int, ...] | None:
    """Return the sizes of a value for one image; None if it is not a float32 batch of these.

    What is computed from parameters alone has another first size than the ``batch`` of the inputs.
    """
    value = node.meta.get("val")
    if isinstance(value, tuple | list) and value and all(user.args[1:] == (0,) for user in node.users):
        value = value[0]  # of several results only the first is used
    if not isinstance(value, Tensor) or value.dtype != torch.float32 or value.device.type != "cpu":
        return None
    sizes = tuple(value.shape[1:])
    if value.ndim < 1 or str(value.shape[0]) != str(batch) or not all(isinstance(size, int) for size in sizes):
        return None
    return sizes


def value_shape(node: fx.Node, batch: int | torch.SymInt, *, last: bool = False) -> tuple[Shape, str] | None:
    """Return a value as a map, channels × height × width, and its axes; None if the runtime has no such maps.

    Lines and maps are read with the channels first, or ``last``.
    """
    sizes = value_sizes(node, batch)
    fitting = [axes for axes in AXES if sizes is not None and len(axes) == len(sizes)]
    if sizes is None or not fitting:
        return None
    axes = next((axes for axes in fitting if channels_last(axes) == last), fitting[0])  # a vector has one order only
    shape = shape_of(axes, sizes)
    try:
        check_shape(shape, "a value")
    except ValueError:
        return None
    return shape, axes


def translate(
    node: fx.Node, arguments: Sequence[Any], options: dict[str, Any], batch: int | torch.SymInt
) -> Node | None:
    """Return a node for an aten operation; ``arguments`` have nodes and tensors in place of names."""
    known = TRANSLATIONS.get(node.target)
    sizes = value_sizes(node, batch)
    if known is None or sizes is None:
        return None
    try:
        made = known(module_name(node), *arguments, **options)
        if made is None:
            return None
        if made.operation is not None:
            made.operation.shape([source.shape for source in made.sources])
    except (TypeError, ValueError):  # a form that the runtime does not have, or a size beyond its limits
        return None
    axes = axes_of(sizes, made.shape, like=made.axes)
    if axes is None:
        return None
    made.axes = axes
    return made


TRANSLATIONS: dict[Any, Translation] = {
    operator.getitem: layers.first,
    aten.conv1d.default: layers.conv,
    aten.conv1d.padding: layers.conv,
    aten.conv2d.default: layers.conv,
    aten.conv2d.padding: layers.conv,
    aten.linear.default: layers.linear,
    aten._native_batch_norm_legit_no_training.default: layers.norm,
    aten.relu.default: pointwise.relu,
    aten.relu6.default: lambda name, x: pointwise.clamp(name, x, 0.0, 6.0),
    aten.hardtanh.default: lambda name, x, low=-1.0, high=1.0: pointwise.clamp(name, x, low, high),
    aten.clamp.default: pointwise.clamp,
    aten.clamp_min.default: pointwise.clamp,
    aten.leaky_relu.default: pointwise.leaky,
    aten.prelu.default: pointwise.prelu,
    aten.gelu.default: pointwise.gelu,
    aten.silu.default: pointwise.activation("silu"),
    aten.hardswish.default: pointwise.activation("hardswish"),
    aten.hardsigmoid.default: pointwise.activation("hardsigmoid"),
    aten.sigmoid.default: pointwise.activation("sigmoid"),
    aten.tanh.default: pointwise.activation("tanh"),
    aten.softmax.int: pointwise.softmax,
    aten._softmax.default: pointwise.softmax,
    aten.log_softmax.int: partial(pointwise.softmax, log=True),
    aten._log_softmax.default: partial(pointwise.softmax, log=True),
    aten.add.Tensor: pointwise.two("add"),
    aten.add.Scalar: pointwise.two("add"),
    aten.mul.Tensor: pointwise.two("mul"),
    aten.mul.Scalar: pointwise.two("mul"),
    aten.sub.Tensor: pointwise.minus,
    aten.div.Tensor: pointwise.divide,
    aten.neg.default: pointwise.negative,
    aten.cat.default: layers.cat,
    aten.max_pool1d.default: layers.max_pool,
    aten.max_pool2d.default: layers.max_pool,
    aten.max_pool2d_with_indices.default: layers.max_pool,
    aten.avg_pool1d.default: layers.avg_pool,
    aten.avg_pool2d.default: layers.avg_pool,
    aten.adaptive_avg_pool1d.default: layers.adaptive("mean"),
    aten.adaptive_avg_pool2d.default: layers.adaptive("mean"),
    aten._adaptive_avg_pool2d.default: layers.adaptive("mean"),
    aten.adaptive_max_pool1d.default: layers.adaptive("max"),
    aten.adaptive_max_pool2d.default: layers.adaptive("max"),
    aten.mean.dim: layers.mean,
    aten.flatten.using_ints: layers.reshape,
    aten.view.default: layers.reshape,
    aten.reshape.default: layers.reshape,
    aten._unsafe_view.default: layers.reshape,
    aten.squeeze.dims: layers.identity,
    aten.squeeze.dim: layers.identity,
    aten.unsqueeze.default: layers.identity,
    aten.permute.default: layers.permute,
    aten.transpose.int: layers.transpose,
    aten.clone.default: layers.identity,
    aten.alias.default: layers.identity,
    aten.contiguous.default: layers.identity,
    aten.detach.default: layers.identity,
    aten.dropout.default: lambda name, x, p=0.5, train=False: None if train else layers.identity(name, x),
}
"""Which aten operation is translated by which function."""
