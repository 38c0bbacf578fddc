"""What translations have in common."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rvsm.lowering.draft import Floats, Node
from rvsm.runtime.operations import Convolution, Operation, Pair, Pointwise


def is_node(*values: Any) -> bool:
    """Return whether all of these are values of the network."""
    return all(isinstance(value, Node) for value in values)


def is_spatial(x: Any) -> bool:
    """Return whether this is a map or a line of positions, with the channels first, as convolutions take them."""
    return isinstance(x, Node) and x.form in ("chw", "cw")


def is_constant(value: Any) -> bool:
    """Return whether this is a float32 tensor."""
    return isinstance(value, Tensor) and value.dtype == torch.float32


def array(tensor: Tensor) -> Floats:
    """Return a tensor as an array of its own: the model may train on."""
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float32, order="C")


def node(operation: Operation, sources: list[Node]) -> Node:
    """Return the node of an operation, in the form of its first source."""
    return Node(operation, sources, operation.shape([source.shape for source in sources]), sources[0].form)


def pair(value: int | Sequence[int], x: Node, usual: int = 1) -> Pair:
    """Return a number, or a list of one or two, as height and width; a line's height has what is ``usual``."""
    numbers = [value] if isinstance(value, int) else list(value)
    if x.form == "cw":
        (width,) = numbers
        return usual, width
    return (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def with_weights(operation: Convolution, source: Node, weights: Tensor | Floats, bias: Tensor | Floats | None) -> Node:
    """Return the node of a convolution with its weights and its bias, zero if there is none."""
    made = node(operation, [source])
    made.weights = array(weights) if isinstance(weights, Tensor) else weights
    zero = np.zeros(operation.channels, dtype=np.float32)
    made.bias = zero if bias is None else array(bias) if isinstance(bias, Tensor) else bias
    return made


def affine(name: str, x: Node, scale: Floats, shift: Floats) -> Node:
    """Return scale·x + shift, channel by channel, as a convolution of one tap."""
    channels = x.shape[0]
    operation = Convolution(name=name, source=0, channels=channels, kernel=(1, 1), groups=channels)
    return with_weights(operation, x, scale.reshape(-1, 1, 1, 1), shift)


def same(source: Node) -> Node:
    """Return a node that stands for its source; it is removed with the others that do nothing."""
    return node(Pointwise(name="identity", operation="none", a=0), [source])
