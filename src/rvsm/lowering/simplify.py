"""Simplify a draft without changing what it computes: fold batch norm, fuse activations and sums, flatten by shape."""

from dataclasses import replace

import numpy as np

from rvsm.lowering.draft import Draft, Node
from rvsm.runtime.plan.operation import NOTHING
from rvsm.runtime.plan.operations import MAX_KERNEL, Convolution, Flattening, Pointwise


def simplify(draft: Draft) -> None:
    """Apply everything in an order in which each step helps the next."""
    draft.drop_unused()
    remove_identities(draft)
    fold_affine(draft)
    flatten_into_linear(draft)
    fold_affine(draft)
    fuse_activations(draft)
    fuse_sums(draft)
    draft.drop_unused()


def remove_identities(draft: Draft) -> None:
    """Remove nodes that return their input, and flattenings of a single position."""
    for node in list(draft.nodes):
        o, source = node.operation, node.sources[0]
        same = isinstance(o, Pointwise) and o.operation == "none" and o.activation == NOTHING
        if same or (isinstance(o, Flattening) and source.shape[1:] == (1, 1)):
            draft.replace(node, source)


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
            before, own = node.sources[0], node.convolution
            o = open_convolution(draft, before, node, uses) if is_affine(node) else None
            if o is None or own is None:
                continue
            scale = node.all_weights.reshape(-1).astype(np.float64)
            before.weights = (before.all_weights * scale[:, None, None, None]).astype(np.float32)
            before.bias = (before.all_biases * scale + node.all_biases).astype(np.float32)
            before.operation = replace(o, activation=own.activation)
            draft.replace(node, before)
            changed = True
            break


def flatten_into_linear(draft: Draft) -> None:
    """Let a linear layer take the map before a flattening, as a convolution as large as the map."""
    for node in draft.nodes:
        o, flattening = node.convolution, node.sources[0]
        if o is None or o.kernel != (1, 1) or o.padding != (0, 0) or o.groups != 1:
            continue
        if isinstance(flattening.operation, Flattening):
            source = flattening.sources[0]
            if max(source.shape[1:]) <= MAX_KERNEL:
                node.weights = node.all_weights.reshape(-1, *source.shape)
                node.operation = replace(o, kernel=source.shape[1:], dilation=(1, 1))
                node.sources[0] = source


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
