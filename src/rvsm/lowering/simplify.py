"""Simplify a draft without changing what it computes: fold batch norm, fuse activations and sums, reorder weights."""

from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from rvsm.lowering import gelu
from rvsm.lowering.draft import Draft, Node
from rvsm.runtime.plan.operation import NOTHING, Activation, Operation, Shape
from rvsm.runtime.plan.operations import MAX_KERNEL, Convolution, Flattening, Pointwise
from rvsm.runtime.plan.tensors import Constant, Rearrangement


def simplify(draft: Draft) -> None:
    """Apply everything in an order in which each step helps the next."""
    draft.drop_unused()
    remove_identities(draft)
    share_constants(draft)
    fold_affine(draft)
    reorder_weights(draft)
    fold_affine(draft)
    lines(draft)
    gelu.recognize(draft)
    fuse_activations(draft)
    fuse_sums(draft)
    draft.drop_unused()
    enter_transposed(draft)
    leave_transposed(draft)
    draft.drop_unused()


def remove_identities(draft: Draft) -> None:
    """Remove nodes that return their input, and flattenings of a single position."""
    for node in list(draft.nodes):
        o = node.operation
        same = isinstance(o, Pointwise) and o.operation == "none" and o.activation == NOTHING
        if same or (isinstance(o, Flattening) and node.sources[0].shape[1:] == (1, 1)):
            draft.replace(node, node.sources[0])


def share_constants(draft: Draft) -> None:
    """Let equal constants be one, such as the masks of all layers."""
    known: dict[tuple[Shape, bytes], Node] = {}
    for node in list(draft.nodes):
        if isinstance(node.operation, Constant):
            first = known.setdefault((node.shape, node.all_weights.tobytes()), node)
            if first is not node:
                draft.replace(node, first)


def enter_transposed(draft: Draft) -> None:
    """Let inputs that are only read with their channels first come in so: the way in can exchange two axes."""
    uses = draft.uses()
    for x in draft.inputs:
        readers = set(uses[x])
        reader = next(iter(readers), None)
        if (
            reader is None
            or len(readers) > 1
            or x in draft.outputs
            or not _exchanges(reader.operation, x, reader.shape[0])
        ):
            continue
        x.shape, x.axes = reader.shape, "wc" if reader.shape[1] == 1 else "hwc"
        draft.replace(reader, x)


def leave_transposed(draft: Draft) -> None:
    """Let results leave with their channels last: the way out can exchange two axes."""
    for k, result in enumerate(draft.outputs):
        source = result.sources[0] if result.sources else result
        if _exchanges(result.operation, source, prod(source.shape[1:])):
            draft.outputs[k] = source
            draft.leaving[k] = draft.leaving[k]._replace(axes="wc" if source.shape[1] == 1 else "hwc")


def _exchanges(o: Operation | None, source: Node, first: int) -> bool:
    """Return whether an operation exchanges two axes of all numbers of ``source``; the ``first`` has so many then."""
    if not isinstance(o, Rearrangement) or o.offset or prod(o.sizes) != prod(source.shape):
        return False
    return len(o.sizes) == 2 and o.sizes[0] == first and o.strides == (1, first)


def lines(draft: Draft) -> None:
    """Let scales and shifts that are the same for all channels, and that no convolution takes, be activations."""
    for node in draft.nodes:
        o = node.convolution
        if o is None or not is_affine(node) or o.activation != NOTHING:
            continue
        scale, shift = node.all_weights.reshape(-1), node.all_biases
        if (scale == scale[0]).all() and (shift == shift[0]).all():
            line = Activation("line", float(scale[0]), float(shift[0]))
            node.operation = Pointwise(name=o.name, operation="none", a=0, activation=line)
            node.weights = node.bias = None


def is_affine(node: Node) -> bool:
    """Return whether a node is scale·x + shift, channel by channel."""
    o = node.convolution
    return (
        o is not None
        and o.kernel == o.stride == (1, 1)
        and o.padding == (0, 0)
        and o.groups == o.channels == node.sources[0].shape[0]
        and len(node.sources) == 1
    )


def open_convolution(draft: Draft, before: Node, node: Node, uses: dict[Node, list[Node]]) -> Convolution | None:
    """Return the convolution ``before`` if ``node`` may become a part of it: no other has, and no other reads it."""
    o = before.convolution
    is_open = o is not None and o.activation == NOTHING and len(before.sources) == 1
    return o if is_open and draft.only_use(before, uses) is node else None


def fold_affine(draft: Draft) -> None:
    """Multiply scales of batch norm into the convolution before, if nothing else reads its output."""
    changed = True
    while changed:
        changed = False
        uses = draft.uses()
        for node in list(draft.nodes):
            own = node.convolution
            o = open_convolution(draft, node.sources[0], node, uses) if is_affine(node) else None
            if o is None or own is None:
                continue
            before = node.sources[0]
            scale = node.all_weights.reshape(-1).astype(np.float64)
            before.weights = (before.all_weights * scale[:, None, None, None]).astype(np.float32)
            before.bias = (before.all_biases * scale + node.all_biases).astype(np.float32)
            before.operation = replace(o, activation=own.activation)
            draft.replace(node, before)
            changed = True
            break


def reorder_weights(draft: Draft) -> None:
    """Let a linear layer take a map before it is flattened, in any order, as a convolution as large as the map."""
    for node in draft.nodes:
        o = node.convolution
        if o is None or o.kernel != (1, 1) or o.padding != (0, 0) or o.groups != 1:
            continue
        moved = node.sources[0]
        if moved.shape[1:] != (1, 1) or not isinstance(moved.operation, Flattening | Rearrangement):
            continue
        source = moved.sources[0]
        places = _places(moved.operation, source)
        if places is None or max(source.shape[1:]) > MAX_KERNEL:
            continue
        taps = np.empty((o.channels, len(places)), dtype=np.float32)
        taps[:, places] = node.all_weights.reshape(o.channels, -1)
        node.weights = taps.reshape(-1, *source.shape)
        node.operation = replace(o, kernel=source.shape[1:], dilation=(1, 1))
        node.sources[0] = source


def _places(o: Flattening | Rearrangement, source: Node) -> NDArray[np.int64] | None:
    """Return where each number of the result comes from, if it has all numbers of the source, each once."""
    numbers = np.arange(prod(source.shape), dtype=np.int64)
    if isinstance(o, Flattening):
        return numbers
    if prod(o.sizes) != len(numbers):
        return None
    places: NDArray[np.int64] = np.full((), o.offset, dtype=np.int64)
    for size, stride in zip(o.sizes, o.strides, strict=True):
        places = np.add.outer(places, np.arange(size, dtype=np.int64) * stride)
    places = places.reshape(-1)
    return places if np.array_equal(np.sort(places), numbers) else None


def fuse_activations(draft: Draft) -> None:
    """Let a convolution, a sum or a product apply the activation that follows it."""
    for node in list(draft.nodes):
        if not isinstance(node.operation, Pointwise) or node.operation.operation != "none":
            continue
        before = node.sources[0]
        can = isinstance(before.operation, Convolution | Pointwise) and before.operation.activation == NOTHING
        if can and draft.only_use(before, draft.uses()) is node:
            before.operation = replace(before.operation, activation=node.operation.activation)  # type: ignore[type-var]
            draft.replace(node, before)


def fuse_sums(draft: Draft) -> None:
    """Let the later of two convolutions add what it is to be added to."""
    for node in list(draft.nodes):
        o = node.operation
        if not isinstance(o, Pointwise) or o.operation != "add" or node.sources[0].shape != node.sources[1].shape:
            continue
        uses = draft.uses()
        place = {candidate: k for k, candidate in enumerate([*draft.inputs, *draft.nodes])}
        for k in sorted((0, 1), key=lambda k: -place[node.sources[k]]):
            before, other = node.sources[k], node.sources[1 - k]
            convolution = open_convolution(draft, before, node, uses) if before is not other else None
            if convolution is not None:
                node.operation = replace(convolution, activation=o.activation)
                node.sources = [before.sources[0], other]
                node.weights, node.bias = before.weights, before.bias
                draft.nodes.remove(before)
                break
