"""From aten operations to operations of a plan; each translation is a function and a line in ``TRANSLATIONS``.

A translation returns a value, or None if it does not know the operation in this form: that one stays in PyTorch.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from rvsm.lowering.capture import Symbols, module_name
from rvsm.lowering.place import Place
from rvsm.lowering.translations import (
    attention,
    entries,
    layers,
    norms,
    pointwise,
    recurrence,
    resampling,
    shapes,
    volumes,
)
from rvsm.lowering.values import Value
from rvsm.lowering.views import Size
from rvsm.runtime.plan.axes import MAX_DIMENSIONS
from rvsm.runtime.plan.operation import RELU, Activation

Translation = Callable[..., Any]
aten = torch.ops.aten
TYPES = (torch.float32, torch.bool, torch.int64, torch.int32)


def size_of(size: int | torch.SymInt, symbols: Symbols) -> Size | None:
    """Return a size as one that counts the images, or not, and the number for each image; None for other symbols."""
    if isinstance(size, int):
        return False, size
    expression = symbols.expression(size)
    if expression.is_Integer:
        return False, int(expression)
    if isinstance(symbols.batch, int):
        return None
    ratio = expression / symbols.batch.node.expr
    return (True, int(ratio)) if ratio.is_Integer else None


def sizes_of(tensor: Tensor, symbols: Symbols) -> list[Size] | None:
    """Return the sizes of a tensor; if a network takes single images only, its first size of 1 counts them."""
    sizes, batch = [size_of(size, symbols) for size in tensor.shape], symbols.batch
    known = [size for size in sizes if size is not None]
    if len(known) != len(sizes) or sum(batched for batched, _ in known) > 1 or any(size < 1 for _, size in known):
        return None
    if isinstance(batch, int) and known and known[0] == (False, batch):
        known[0] = (True, 1)
    return known


def value_sizes(node: fx.Node, symbols: Symbols) -> tuple[int, ...] | None:
    """Return the sizes of a value from outside, for one image; None if it is no batch of numbers."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.dtype not in TYPES or value.device.type != "cpu":
        return None
    sizes = sizes_of(value, symbols)
    if not sizes or sizes[0] != (True, 1) or len(sizes) - 1 > MAX_DIMENSIONS:
        return None
    return tuple(size for _, size in sizes[1:])


def translate(node: fx.Node, arguments: Sequence[Any], options: dict[str, Any], symbols: Symbols) -> Any:
    """Return the value or the values of a graph node, or None if the runtime does not have the operation in this form.

    ``arguments`` and ``options`` are those of the node, with values for graph nodes that have one.
    """
    translation = TRANSLATIONS.get(node.target)
    meta = node.meta.get("val")
    first = meta[0] if isinstance(meta, tuple | list) and meta else meta
    if translation is None or not isinstance(first, Tensor) or first.dtype not in TYPES:
        return None
    sizes = sizes_of(first, symbols)
    if sizes is None:
        return None
    try:
        made = translation(Place(module_name(node), sizes, first.dtype), *arguments, **options)
    except (TypeError, ValueError, AttributeError):  # a form that the runtime does not have, or beyond its limits
        return None
    if isinstance(made, list):
        expected = [sizes_of(each, symbols) for each in meta] if isinstance(meta, tuple | list) else []
        right = [v.sizes for v in made] == expected
        return [replace(value, dtype=first.dtype) for value in made] if right else None
    if not isinstance(made, Value) or made.sizes != sizes:
        return None
    return replace(made, dtype=first.dtype)


def _activation(name: str, a: float = 0.0, b: float = 0.0) -> Translation:
    return partial(pointwise.activated, activation=Activation(name, a, b))


_TABLE: tuple[tuple[Translation, Sequence[Any]], ...] = (
    (shapes.first, [operator.getitem]),
    # layers
    (layers.conv, [aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding]),
    (layers.transposed_conv, [aten.conv_transpose1d.default, aten.conv_transpose2d.input]),
    (volumes.conv, [aten.conv3d.default, aten.conv3d.padding]),
    (volumes.transposed_conv, [aten.conv_transpose3d.input]),
    (layers.linear, [aten.linear.default]),
    (layers.addmm, [aten.addmm.default]),
    (layers.embedding, [aten.embedding.default]),
    (layers.norm, [aten._native_batch_norm_legit_no_training.default]),
    (layers.batch_norm, [aten.batch_norm.default]),
    (layers.max_pool, [aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool2d_with_indices.default]),
    (layers.avg_pool, [aten.avg_pool1d.default, aten.avg_pool2d.default]),
    (partial(layers.adaptive, mode="mean"), [aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default]),
    (partial(layers.adaptive, mode="mean"), [aten._adaptive_avg_pool2d.default]),
    (partial(layers.adaptive, mode="max"), [aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default]),
    (volumes.max_pool, [aten.max_pool3d.default, aten.max_pool3d_with_indices.default]),
    (volumes.avg_pool, [aten.avg_pool3d.default]),
    (partial(volumes.adaptive, mode="mean"), [aten.adaptive_avg_pool3d.default, aten._adaptive_avg_pool3d.default]),
    (partial(volumes.adaptive, mode="max"), [aten.adaptive_max_pool3d.default]),
    (partial(recurrence.recurrent, cell="lstm"), [aten.lstm.input]),
    (partial(recurrence.recurrent, cell="gru"), [aten.gru.input]),
    (partial(recurrence.recurrent, cell="tanh"), [aten.rnn_tanh.input]),
    (partial(recurrence.recurrent, cell="relu"), [aten.rnn_relu.input]),
    # activations
    (partial(pointwise.activated, activation=RELU), [aten.relu.default]),
    (partial(pointwise.clamp, low=0.0, high=6.0), [aten.relu6.default]),
    (lambda at, x, low=-1.0, high=1.0: pointwise.clamp(at, x, low, high), [aten.hardtanh.default]),
    (pointwise.clamp, [aten.clamp.default, aten.clamp_min.default]),
    (lambda at, x, high: pointwise.clamp(at, x, None, high), [aten.clamp_max.default]),
    (pointwise.leaky, [aten.leaky_relu.default]),
    (pointwise.prelu, [aten.prelu.default]),
    (pointwise.gelu, [aten.gelu.default]),
    (pointwise.elu, [aten.elu.default]),
    (lambda at, x: pointwise.elu(at, x, *pointwise.SELU), [aten.selu.default]),
    (pointwise.softplus, [aten.softplus.default]),
    (pointwise.power, [aten.pow.Tensor_Scalar]),
    (_activation("silu"), [aten.silu.default]),
    (_activation("mish"), [aten.mish.default]),
    (_activation("hardswish"), [aten.hardswish.default]),
    (_activation("hardsigmoid"), [aten.hardsigmoid.default]),
    (_activation("sigmoid"), [aten.sigmoid.default]),
    (_activation("tanh"), [aten.tanh.default]),
    (_activation("erf"), [aten.erf.default]),
    (_activation("exp"), [aten.exp.default]),
    (_activation("log"), [aten.log.default]),
    (_activation("abs"), [aten.abs.default]),
    (_activation("square"), [aten.square.default]),
    (_activation("sqrt"), [aten.sqrt.default]),
    (_activation("rsqrt"), [aten.rsqrt.default]),
    (_activation("reciprocal"), [aten.reciprocal.default]),
    # arithmetic
    (partial(pointwise.two, operation="add"), [aten.add.Tensor, aten.add.Scalar]),
    (partial(pointwise.two, operation="mul"), [aten.mul.Tensor, aten.mul.Scalar]),
    (partial(pointwise.two, operation="sub"), [aten.sub.Tensor, aten.sub.Scalar]),
    (pointwise.reverse_minus, [aten.rsub.Tensor, aten.rsub.Scalar]),
    (pointwise.divide, [aten.div.Tensor, aten.div.Scalar]),
    (lambda at, x: pointwise.scaled(at, x, -1), [aten.neg.default]),
    (lambda at, a, b: pointwise.combined(at, "max", a, b), [aten.maximum.default]),
    (lambda at, a, b: pointwise.combined(at, "min", a, b), [aten.minimum.default]),
    (partial(pointwise.fused, operation="mul"), [aten.addcmul.default]),
    (partial(pointwise.fused, operation="div"), [aten.addcdiv.default]),
    (partial(pointwise.compare, operation="equal"), [aten.eq.Tensor, aten.eq.Scalar]),
    (partial(pointwise.compare, operation="unequal"), [aten.ne.Tensor, aten.ne.Scalar]),
    (partial(pointwise.compare, operation="below"), [aten.lt.Tensor, aten.lt.Scalar]),
    (partial(pointwise.compare, operation="at_most"), [aten.le.Tensor, aten.le.Scalar]),
    (partial(pointwise.compare, operation="above"), [aten.gt.Tensor, aten.gt.Scalar]),
    (partial(pointwise.compare, operation="at_least"), [aten.ge.Tensor, aten.ge.Scalar]),
    (pointwise.choose, [aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther]),
    (pointwise.masked_fill, [aten.masked_fill.Scalar, aten.masked_fill.Tensor]),
    (partial(pointwise.logical, operation="mul"), [aten.__and__.Tensor, aten.logical_and.default]),
    (partial(pointwise.logical, operation="mul"), [aten.bitwise_and.Tensor]),
    (partial(pointwise.logical, operation="max"), [aten.__or__.Tensor, aten.logical_or.default]),
    (partial(pointwise.logical, operation="max"), [aten.bitwise_or.Tensor]),
    (pointwise.negation, [aten.logical_not.default, aten.bitwise_not.default]),
    (pointwise.convert, [aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.to.device]),
    (pointwise.convert, [aten.type_as.default]),
    # sums, norms, attention
    (norms.softmax, [aten.softmax.int, aten._softmax.default]),
    (partial(norms.softmax, masked=True), [aten._safe_softmax.default]),
    (partial(norms.softmax, log=True), [aten.log_softmax.int, aten._log_softmax.default]),
    (norms.layer_norm, [aten.layer_norm.default]),
    (norms.native_layer_norm, [aten.native_layer_norm.default]),
    (norms.rms_norm, [aten.rms_norm.default]),
    (norms.group_norm, [aten.group_norm.default]),
    (norms.native_group_norm, [aten.native_group_norm.default]),
    (norms.instance_norm, [aten.instance_norm.default]),
    (partial(norms.reduced, mode="mean"), [aten.mean.dim]),
    (partial(norms.reduced, mode="sum"), [aten.sum.dim_IntList]),
    (partial(norms.reduced, mode="max"), [aten.amax.default]),
    (norms.vector_norm, [aten.linalg_vector_norm.default]),
    (norms.running, [aten.cumsum.default]),
    (norms.gathered, [aten.gather.default]),
    (attention.einsum, [aten.einsum.default]),
    (attention.matmul, [aten.matmul.default, aten.bmm.default, aten.mm.default]),
    (attention.added_product, [aten.baddbmm.default]),
    (attention.attention, [aten.scaled_dot_product_attention.default]),
    # shapes
    (shapes.cat, [aten.cat.default]),
    (shapes.stack, [aten.stack.default]),
    (shapes.reshape, [aten.flatten.using_ints, aten.unflatten.int, aten.view.default, aten.reshape.default]),
    (shapes.reshape, [aten._unsafe_view.default, aten.squeeze.dims, aten.squeeze.dim, aten.squeeze.default]),
    (shapes.reshape, [aten.unsqueeze.default, aten.view_as.default, aten.reshape_as.default]),
    (shapes.permute, [aten.permute.default]),
    (shapes.transpose, [aten.transpose.int, aten.t.default]),
    (shapes.expand, [aten.expand.default, aten.expand_as.default]),
    (shapes.select, [aten.select.int]),
    (shapes.cut, [aten.slice.Tensor]),
    (shapes.scatter, [aten.slice_scatter.default]),
    (shapes.split, [aten.split.Tensor, aten.split_with_sizes.default, aten.split.sizes]),
    (shapes.chunk, [aten.chunk.default]),
    (shapes.unbind, [aten.unbind.int]),
    (entries.pad, [aten.constant_pad_nd.default]),
    (lambda at, x, pads, mode="constant", value=None: entries.pad(at, x, pads, value or 0.0, mode), [aten.pad.default]),
    (partial(entries.pad, mode="reflect"), [aten.reflection_pad1d.default, aten.reflection_pad2d.default]),
    (partial(entries.pad, mode="reflect"), [aten.reflection_pad3d.default]),
    (partial(entries.pad, mode="replicate"), [aten.replication_pad1d.default, aten.replication_pad2d.default]),
    (partial(entries.pad, mode="replicate"), [aten.replication_pad3d.default]),
    (partial(entries.pad, mode="circular"), [aten._pad_circular.default]),
    (entries.flip, [aten.flip.default]),
    (entries.index_select, [aten.index_select.default]),
    (shapes.pixel_shuffle, [aten.pixel_shuffle.default]),
    (shapes.pixel_unshuffle, [aten.pixel_unshuffle.default]),
    (shapes.channel_shuffle, [aten.channel_shuffle.default, aten.native_channel_shuffle.default]),
    (entries.roll, [aten.roll.default]),
    (shapes.repeat, [aten.repeat.default]),
    (entries.index, [aten.index.Tensor]),
    (partial(shapes.filled, value=0.0), [aten.zeros_like.default, aten.new_zeros.default]),
    (partial(shapes.filled, value=1.0), [aten.ones_like.default, aten.new_ones.default]),
    (shapes.filled, [aten.full_like.default, aten.new_full.default]),
    (shapes.identity, [aten.clone.default, aten.alias.default, aten.contiguous.default, aten.detach.default]),
    (lambda at, x, p=0.5, train=False: None if train else shapes.identity(at, x), [aten.dropout.default]),
    # upsampling
    (partial(resampling.upsample, mode="nearest"), [aten.upsample_nearest1d.default, aten.upsample_nearest1d.vec]),
    (partial(resampling.upsample, mode="nearest"), [aten.upsample_nearest2d.default, aten.upsample_nearest2d.vec]),
    (partial(resampling.upsample, mode="nearest"), [aten.upsample_nearest3d.default, aten.upsample_nearest3d.vec]),
    (partial(resampling.upsample, mode="linear"), [aten.upsample_linear1d.default, aten.upsample_linear1d.vec]),
    (partial(resampling.upsample, mode="linear"), [aten.upsample_bilinear2d.default, aten.upsample_bilinear2d.vec]),
    (partial(resampling.upsample, mode="cubic"), [aten.upsample_bicubic2d.default, aten.upsample_bicubic2d.vec]),
    (partial(resampling.upsample, mode="linear"), [aten.upsample_trilinear3d.default, aten.upsample_trilinear3d.vec]),
)
TRANSLATIONS: dict[Any, Translation] = {target: function for function, targets in _TABLE for target in targets}
"""Which aten operation is translated by which function."""
