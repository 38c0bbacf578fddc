"""VGG-16 with batch norm for images of 32×32 pixels, the network of the paper's Table 1."""

from torch import nn

_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(*, width: float = 1.0, classes: int = 10) -> nn.Sequential:
    """Return thirteen 3×3 convolutions in five stages, each halved by max pooling, and one linear layer.

    ``width`` scales the 64 to 512 channels.

    >>> sum(p.numel() for p in vgg16().parameters())
    14724042
    """
    layers: list[nn.Module] = []
    inputs = 3
    for stage in _STAGES:
        for channels in stage:
            outputs = round(width * channels)
            layers += [
                nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            ]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs, classes))
