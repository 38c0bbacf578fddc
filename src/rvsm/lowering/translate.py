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
from rvsm.runtime.plan.operation import RELU, Activation, Shape
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
    except (TypeError, ValueError):  # a form that the runtime does not have, or a size beyond its limits
        return None
    axes = None if made is None else axes_of(sizes, made.shape, like=made.axes)
    if made is None or axes is None:
        return None
    made.axes = axes
    return made


_TABLE: tuple[tuple[Translation, Sequence[Any]], ...] = (
    (layers.first, [operator.getitem]),
    (layers.conv, [aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding]),
    (layers.linear, [aten.linear.default]),
    (layers.norm, [aten._native_batch_norm_legit_no_training.default]),
    (layers.batch_norm, [aten.batch_norm.default]),
    (partial(pointwise.activated, activation=RELU), [aten.relu.default]),
    (partial(pointwise.clamp, low=0.0, high=6.0), [aten.relu6.default]),
    (lambda name, x, low=-1.0, high=1.0: pointwise.clamp(name, x, low, high), [aten.hardtanh.default]),
    (pointwise.clamp, [aten.clamp.default, aten.clamp_min.default]),
    (pointwise.leaky, [aten.leaky_relu.default]),
    (pointwise.prelu, [aten.prelu.default]),
    (pointwise.gelu, [aten.gelu.default]),
    (partial(pointwise.activated, activation=Activation("silu")), [aten.silu.default]),
    (partial(pointwise.activated, activation=Activation("hardswish")), [aten.hardswish.default]),
    (partial(pointwise.activated, activation=Activation("hardsigmoid")), [aten.hardsigmoid.default]),
    (partial(pointwise.activated, activation=Activation("sigmoid")), [aten.sigmoid.default]),
    (partial(pointwise.activated, activation=Activation("tanh")), [aten.tanh.default]),
    (pointwise.softmax, [aten.softmax.int, aten._softmax.default]),
    (partial(pointwise.softmax, log=True), [aten.log_softmax.int, aten._log_softmax.default]),
    (partial(pointwise.two, operation="add"), [aten.add.Tensor, aten.add.Scalar]),
    (partial(pointwise.two, operation="mul"), [aten.mul.Tensor, aten.mul.Scalar]),
    (pointwise.minus, [aten.sub.Tensor]),
    (pointwise.divide, [aten.div.Tensor]),
    (pointwise.negative, [aten.neg.default]),
    (layers.cat, [aten.cat.default]),
    (layers.max_pool, [aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool2d_with_indices.default]),
    (layers.avg_pool, [aten.avg_pool1d.default, aten.avg_pool2d.default]),
    (partial(layers.adaptive, mode="mean"), [aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default]),
    (partial(layers.adaptive, mode="mean"), [aten._adaptive_avg_pool2d.default]),
    (partial(layers.adaptive, mode="max"), [aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default]),
    (layers.mean, [aten.mean.dim]),
    (layers.reshape, [aten.flatten.using_ints, aten.view.default, aten.reshape.default, aten._unsafe_view.default]),
    (layers.permute, [aten.permute.default]),
    (layers.transpose, [aten.transpose.int]),
    (layers.identity, [aten.squeeze.dims, aten.squeeze.dim, aten.unsqueeze.default, aten.clone.default]),
    (layers.identity, [aten.alias.default, aten.contiguous.default, aten.detach.default]),
    (lambda name, x, p=0.5, train=False: None if train else layers.identity(name, x), [aten.dropout.default]),
)
TRANSLATIONS: dict[Any, Translation] = {target: function for function, targets in _TABLE for target in targets}
"""Which aten operation is translated by which function."""
