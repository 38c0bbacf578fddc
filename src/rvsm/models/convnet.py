"""A small convolutional network for the digits."""

from torch import nn

from rvsm.models.sizes import check


def convnet(*, width: int = 32, classes: int = 10, channels: int = 1, size: int = 8) -> nn.Sequential:
    """Return three 3×3 convolutions with batch norm, a pooled map of about 4×4 and a linear layer.

    Args:
        width: channels of the first two convolutions; the third has twice as many.
        classes: number of outputs.
        channels: channels of an image.
        size: height and width of an image; from 16 on there is a second pooling.

    >>> sum(p.numel() for p in convnet().parameters())
    38442

    """
    if width < 1:
        raise ValueError(f"width is the number of channels and must be >= 1 but is {width}")
    check(classes=classes, channels=channels, size=size, smallest=2)
    side = size // 2
    last = max(1, side // 4)
    return nn.Sequential(
        *_convolution(channels, width),
        *_convolution(width, width),
        nn.MaxPool2d(2),
        *_convolution(width, 2 * width),
        *([nn.MaxPool2d(last)] if last > 1 else []),
        nn.Flatten(),
        nn.Linear(2 * width * (side // last) ** 2, classes),
    )


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
