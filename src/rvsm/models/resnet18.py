"""ResNet-18 for images of 32×32 pixels, the network of the paper's Table 2."""

from typing import cast

from torch import Tensor, nn


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


def resnet18(*, width: float = 1.0, classes: int = 10) -> nn.Sequential:
    """Return ResNet-18 with a 3×3 stem and no first pooling; ``width`` scales the 64 to 512 channels.

    >>> sum(p.numel() for p in resnet18().parameters())
    11173962
    """
    channels = [round(width * c) for c in (64, 128, 256, 512)]
    layers: list[nn.Module] = [
        nn.Conv2d(3, channels[0], 3, padding=1, bias=False),
        nn.BatchNorm2d(channels[0]),
        nn.ReLU(inplace=True),
    ]
    inputs = channels[0]
    for stage, outputs in enumerate(channels):
        layers += [BasicBlock(inputs, outputs, stride=1 if stage == 0 else 2), BasicBlock(outputs, outputs, stride=1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
