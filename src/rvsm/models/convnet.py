"""A small convolutional network for the digits."""

from torch import nn


def convnet(*, width: int = 32, classes: int = 10) -> nn.Sequential:
    """Return three 3×3 convolutions with batch norm, a pooled 4×4 map and a linear layer, for 8×8 images."""
    return nn.Sequential(
        *_convolution(1, width),
        *_convolution(width, width),
        nn.MaxPool2d(2),
        *_convolution(width, 2 * width),
        nn.Flatten(),
        nn.Linear(2 * width * 16, classes),
    )


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
