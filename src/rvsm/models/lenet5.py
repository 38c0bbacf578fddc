"""LeNet-5, for images of 28×28 pixels with one channel."""

from torch import nn


def lenet5(*, classes: int = 10) -> nn.Sequential:
    """Return two 5×5 convolutions and three linear layers, with ReLU and max pooling.

    >>> sum(p.numel() for p in lenet5().parameters())
    61706
    """
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
