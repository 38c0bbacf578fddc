"""Simplify a draft without changing what it computes: fold batch norm, fuse activations and sums, flatten by shape."""

from dataclasses import replace

import numpy as np

from rvsm.lowering.draft import Draft, Node
from rvsm.runtime.plan import NOTHING, Convolution, Flattening, Pointwise
from rvsm.runtime.plan.operations import MAX_KERNEL


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
    """Forget nodes that give what they get, and flattenings of a single position."""
    for node in list(draft.nodes):
        match node.operation:
            case Pointwise(operation="none") as o if o.activation == NOTHING:
                draft.replace(node, node.sources[0])
            case Flattening() if node.sources[0].shape[1:] == (1, 1):
                draft.replace(node, node.sources[0])


def is_affine(node: Node) -> bool:
    """Say whether a node is scale·x + shift, channel by channel."""
    o = node.convolution
    return (
        o is not None
        and o.kernel == o.stride == (1, 1)
        and o.padding == (0, 0)
        and o.groups == o.channels == node.sources[0].shape[0]
        and len(node.sources) == 1
    )


def fold_affine(draft: Draft) -> None:
    """Multiply scales of batch norm into the convolution before, if nobody else needs what that gives."""
    changed = True
    while changed:
        changed = False
        uses = draft.uses()
        for node in list(draft.nodes):
            before = node.sources[0] if node.sources else None
            if before is None or not is_affine(node) or node.weights is None or node.bias is None:
                continue
            o = before.convolution
            free = o is not None and o.activation == NOTHING and len(before.sources) == 1
            if not free or draft.only_use(before, uses) is not node or before.weights is None or before.bias is None:
                continue
            scale = node.weights.reshape(-1).astype(np.float64)
            before.weights = (before.weights * scale[:, None, None, None]).astype(np.float32)
            before.bias = (before.bias * scale + node.bias).astype(np.float32)
            assert o is not None
            assert node.convolution is not None
            before.operation = replace(o, activation=node.convolution.activation)
            draft.replace(node, before)
            changed = True
            break


def flatten_into_linear(draft: Draft) -> None:
    """Let a linear layer take the map before a flattening, as a convolution as large as the map."""
    for node in draft.nodes:
        o = node.convolution
        if o is None or o.kernel != (1, 1) or o.padding != (0, 0) or o.groups != 1 or node.weights is None:
            continue
        flattening = node.sources[0]
        if isinstance(flattening.operation, Flattening):
            source = flattening.sources[0]
            if max(source.shape[1:]) <= MAX_KERNEL:
                node.weights = node.weights.reshape(len(node.weights), *source.shape)
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
            c = before.convolution
            free = c is not None and c.activation == NOTHING and len(before.sources) == 1 and before is not other
            if free and draft.only_use(before, uses) is node:
                assert c is not None
                node.operation = replace(c, activation=o.activation)
                node.sources = [before.sources[0], other]
                node.weights, node.bias = before.weights, before.bias
                draft.nodes.remove(before)
                break
