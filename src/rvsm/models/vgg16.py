"""VGG-16 with batch norm for images of 32×32 pixels, the network of the paper's Table 1."""

from torch import nn

from rvsm.models.sizes import check, scaled

_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(*, width: float = 1.0, classes: int = 10, channels: int = 3, size: int = 32) -> nn.Sequential:
    """Return thirteen 3×3 convolutions in five stages, each halved by max pooling, and one linear layer.

    Args:
        width: multiplies the 64 to 512 channels.
        classes: number of outputs.
        channels: channels of an image.
        size: height and width of an image; below 32 pixels the last stages, one pixel wide, are not halved.

    >>> sum(p.numel() for p in vgg16().parameters())
    14724042

    """
    check(classes=classes, channels=channels, size=size)
    layers: list[nn.Module] = []
    inputs = channels
    for stage in _STAGES:
        for outputs in scaled(stage, width):
            layers += [
                nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            ]
            inputs = outputs
        if size > 1:
            layers.append(nn.MaxPool2d(2))
            size //= 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * size**2, classes))
