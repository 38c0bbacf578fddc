"""The small networks that tests of all folders use."""

import torch
from torch import nn


def network(
    channels: int = 1,
    width: int = 8,
    outputs: int = 4,
    *,
    norm: bool = False,
    dropout: float | None = None,
    seed: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """Return a convolution and a linear layer, for images of 6 × 6.

    Args:
        channels: of an image.
        width: channels of the convolution.
        outputs: of the linear layer.
        norm: with batch norm after the convolution.
        dropout: its probability, before the linear layer; None for none.
        seed: of the weights; None for the random state as it is.
        dtype: of the weights, which are drawn as float32.

    """
    if seed is not None:
        torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3)]
    layers += [nn.BatchNorm2d(width)] if norm else []
    layers += [nn.ReLU()]
    layers += [] if dropout is None else [nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * width, outputs)).to(dtype)


def perceptron(inputs: int = 20, hidden: int = 30, outputs: int = 10, *, seed: int | None = None) -> nn.Sequential:
    """Return two linear layers with ReLU between them."""
    if seed is not None:
        torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
