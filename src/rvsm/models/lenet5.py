"""LeNet-5, made for images of 28×28 pixels with one channel."""

from torch import nn

from rvsm.models.sizes import check, scaled


def lenet5(*, width: float = 1.0, classes: int = 10, channels: int = 1, size: int = 28) -> nn.Sequential:
    """Return two 5×5 convolutions and three linear layers, with ReLU and max pooling.

    Args:
        width: multiplies the 6 and 16 channels and the 120 and 84 units.
        classes: number of outputs.
        channels: channels of an image.
        size: height and width of an image; below 12 pixels the second convolution is padded like the first.

    >>> sum(p.numel() for p in lenet5().parameters())
    61706

    """
    check(classes=classes, channels=channels, size=size, smallest=4)
    first, second, third, fourth = scaled((6, 16, 120, 84), width)
    padding = 0 if size >= 12 else 2
    side = (size // 2 - 4 + 2 * padding) // 2
    return nn.Sequential(
        nn.Conv2d(channels, first, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * side**2, third),
        nn.ReLU(),
        nn.Linear(third, fourth),
        nn.ReLU(),
        nn.Linear(fourth, classes),
    )
