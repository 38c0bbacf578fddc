"""Remove channels that can no longer matter.

A filter without weights gives the constant act(bias) everywhere. If that is zero, nothing needs it. Otherwise it moves
into the bias of the next layer, but only if that layer has no padding: at a border it would count taps outside. And a
channel that no later layer has weights for is not computed.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from rvsm.lowering.draft import Draft, Floats, Node
from rvsm.runtime.plan.operation import Activation
from rvsm.runtime.plan.operations import AdaptivePooling, Convolution, Pointwise, Pooling

Truths = NDArray[np.bool_]


def remove_dead_channels(draft: Draft) -> int:
    """Remove channels until none is left to remove; return how many were removed."""
    removed, found = 0, 1
    while found:
        uses = draft.uses()
        found = sum(_shrink(node, readers) for node in draft.nodes if (readers := _readers(node, draft, uses)))
        removed += found
    return removed


def _readers(node: Node, draft: Draft, uses: dict[Node, list[Node]]) -> list[tuple[list[Node], Node]]:
    """Return the convolutions that read ``node``, each with the channelwise nodes between; [] if others read it."""
    if node.convolution is None or node.convolution.groups != 1 or len(node.sources) != 1:
        return []
    result: list[tuple[list[Node], Node]] = []
    open_paths: list[tuple[list[Node], Node]] = [([], node)]
    while open_paths:
        path, last = open_paths.pop()
        if last in draft.outputs or not uses[last]:
            return []
        for reader in uses[last]:
            o = reader.operation
            if isinstance(o, Convolution):
                if o.groups != 1 or reader.sources[0] is not last or reader.sources.count(last) > 1:
                    return []
                result.append((path, reader))
            elif isinstance(o, Pooling | AdaptivePooling) or (isinstance(o, Pointwise) and o.operation == "none"):
                open_paths.append(([*path, reader], reader))
            else:
                return []
    return result


def _shrink(node: Node, readers: list[tuple[list[Node], Node]]) -> int:
    """Remove the channels of ``node`` that are constant or unread, and return how many."""
    weights, bias, o = node.all_weights, node.all_biases, node.convolution
    assert o is not None
    empty = ~weights.reshape(len(weights), -1).any(axis=1)
    constants = apply(o.activation, bias)
    dead = np.ones(len(weights), dtype=np.bool_)
    for path, reader in readers:
        dead &= ~reader.all_weights.any(axis=(0, 2, 3)) | (empty & _absorbs(path, reader, constants))
    dead &= np.isfinite(constants) | ~empty
    if dead.all():
        dead[0] = False  # a map needs a channel
    if not dead.any():
        return 0
    between: dict[Node, None] = {}
    for path, reader in readers:
        _absorb(path, reader, constants, dead & empty)
        reader.weights = np.ascontiguousarray(reader.all_weights[:, ~dead])
        between.update(dict.fromkeys(path))
    node.weights, node.bias = weights[~dead], bias[~dead]
    node.operation = replace(o, channels=len(node.bias))
    for part in (node, *between):
        part.shape = (len(node.bias), *part.shape[1:])
    return int(dead.sum())


def _absorbs(path: list[Node], reader: Node, constants: Floats) -> Truths:
    """Return for which constants the reader does not need the channel."""
    if _stays_constant(path, reader):
        return np.ones(len(constants), dtype=np.bool_)
    zero = constants == 0
    for values in _along(path, constants):  # a zero that stays zero matters nowhere, padding or not
        zero &= values == 0
    return np.asarray(zero)


def _absorb(path: list[Node], reader: Node, constants: Floats, chosen: Truths) -> None:
    """Add what the chosen constants contribute to the reader's bias."""
    if not _stays_constant(path, reader):
        return  # only zeros were accepted
    values = [constants, *_along(path, constants)][-1]
    sums = reader.all_weights[:, chosen].astype(np.float64).sum(axis=(2, 3))
    total = sums @ values[chosen].astype(np.float64)
    reader.bias = (reader.all_biases + total).astype(np.float32)


def _along(path: list[Node], values: Floats) -> Iterator[Floats]:
    """Yield the constants after each activation on the way."""
    for part in path:
        if isinstance(part.operation, Pointwise):
            values = apply(part.operation.activation, values)
            yield values


def _stays_constant(path: list[Node], reader: Node) -> bool:
    """Return whether a constant map stays constant on the way to the reader, and inside it."""
    windows = [node.operation for node in (*path, reader) if isinstance(node.operation, Pooling | Convolution)]
    return all(window.padding == (0, 0) for window in windows)


def apply(activation: Activation, values: Floats) -> Floats:
    """Return an activation of numbers, by PyTorch."""
    x, a, b = torch.from_numpy(np.ascontiguousarray(values)), activation.a, activation.b
    match activation.name:
        case "none":
            y = x
        case "clamp":
            y = x.clamp(a, b)
        case "leaky":
            y = functional.leaky_relu(x, a)
        case "gelu_tanh":
            y = functional.gelu(x, approximate="tanh")
        case "line":
            y = a * x + b
        case "elu":
            y = torch.where(x > 0, b * x, a * x.expm1())
        case "cube" | "power":
            y = x ** (3 if activation.name == "cube" else a)
        case "choose":
            y = torch.where(x != 0, a, b)
        case "equal" | "above" | "below" | "at_least" | "at_most":
            compare = {"equal": "eq", "above": "gt", "below": "lt", "at_least": "ge", "at_most": "le"}
            y = getattr(torch, compare[activation.name])(x, a).float()
        case name:  # without parameters, and called the same in PyTorch
            y = (getattr(torch, name, None) or getattr(functional, name))(x)
    return np.asarray(y.numpy())
