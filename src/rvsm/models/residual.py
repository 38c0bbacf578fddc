"""Residual networks for images of 32×32 pixels: ResNet-18, of the paper's Table 2, and the small ResNet-20."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from rvsm.models.sizes import check, scaled


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(convolutions(x) + shortcut(x))."""
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return cast(Tensor, self.relu(y + self.shortcut(x)))


def resnet18(*, width: float = 1.0, classes: int = 10, channels: int = 3) -> nn.Sequential:
    """Return ResNet-18 with a 3×3 stem and no first pooling, for images of any size.

    Args:
        width: multiplies the 64 to 512 channels.
        classes: number of outputs.
        channels: channels of an image.

    >>> sum(p.numel() for p in resnet18().parameters())
    11173962

    """
    return _resnet(channels, scaled((64, 128, 256, 512), width), depth=2, classes=classes)


def resnet20(*, width: float = 1.0, classes: int = 10, channels: int = 3) -> nn.Sequential:
    """Return ResNet-20, with 1×1 shortcuts where the shape changes, for images of any size.

    Args:
        width: multiplies the 16, 32 and 64 channels.
        classes: number of outputs.
        channels: channels of an image.

    >>> sum(p.numel() for p in resnet20().parameters())
    272474

    """
    return _resnet(channels, scaled((16, 32, 64), width), depth=3, classes=classes)


def _resnet(channels: int, stages: Sequence[int], *, depth: int, classes: int) -> nn.Sequential:
    check(classes=classes, channels=channels)
    inputs = stages[0]
    layers: list[nn.Module] = [
        nn.Conv2d(channels, inputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU(inplace=True),
    ]
    for stage, outputs in enumerate(stages):
        for block in range(depth):
            layers.append(BasicBlock(inputs, outputs, stride=2 if stage > 0 and block == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
