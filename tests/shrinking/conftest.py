"""Small networks of every style that channels can be coupled in, and zeros in them."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from rvsm.coupling import find_channels


class Residual(nn.Module):
    """A convolution, two blocks whose outputs are added to their inputs, one of them through a 1×1 shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.one = nn.Sequential(
            nn.Conv2d(8, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(inplace=True),
            nn.Conv2d(12, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8),
        )  # fmt: skip
        self.two = nn.Sequential(nn.Conv2d(8, 10, 3, stride=2, padding=1), nn.BatchNorm2d(10))
        self.shortcut = nn.Conv2d(8, 10, 1, stride=2)
        self.last = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(self.one(x) + x)
        x = torch.relu(self.two(x) + self.shortcut(x))
        return self.last(x.mean((2, 3)))


class Concatenated(nn.Module):
    """Branches side by side, a batch norm over all of them, and one branch that skips it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(3, 5, 1)
        self.norm, self.next = nn.BatchNorm2d(11), nn.Conv2d(11, 7, 3, padding=1)
        self.last = nn.Conv2d(13, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.a(x), self.b(x)
        y = torch.relu(self.next(torch.relu(self.norm(torch.cat([a, b], 1)))))
        return self.last(torch.cat([y, a], 1)).mean((2, 3))


class Excited(nn.Module):
    """Channels that are scaled by what a small network makes of their means."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU())
        self.gate = nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), nn.Hardsigmoid())
        self.last = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(x * self.gate(x.mean((2, 3), keepdim=True))).mean((2, 3))


def mobile() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.Conv2d(8, 12, 1), nn.PReLU(12), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4),
    )  # fmt: skip


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(), nn.Flatten(),
        nn.Linear(32, 10), nn.Sigmoid(), nn.Linear(10, 6), nn.ReLU(), nn.Linear(6, 4),
    )  # fmt: skip


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1, groups=2), nn.ReLU(),
        nn.Conv2d(12, 6, 1), nn.Tanh(), nn.ConvTranspose2d(6, 5, 2, stride=2), nn.ReLU(), nn.Conv2d(5, 4, 3),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def signal() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(2), nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(8, 6, 3, padding=1, padding_mode="replicate"), nn.ELU(), nn.Flatten(), nn.Linear(192, 4),
    )  # fmt: skip


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "residual": Residual,
    "concatenated": Concatenated,
    "excited": Excited,
    "mobile": mobile,
    "vgg": vgg,
    "grouped": grouped,
    "signal": signal,
}
EXAMPLE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def network(style: str, seed: int = 0) -> nn.Module:
    """Return a network whose batch norms have seen something, so that dead channels leave constants behind."""
    torch.manual_seed(seed)
    model = NETWORKS[style]()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.bias)
    return model


@torch.no_grad()
def empty_channels(model: nn.Module, share: float, seed: int = 0) -> set[int]:
    """Zero all parameters of a share of the channels that may go, as coupled groups do, and return their numbers."""
    channels = find_channels(model, EXAMPLE)
    generator = torch.Generator().manual_seed(seed)
    fixed = channels.kept.keys() | channels.lost.keys()
    chosen = {c for c in range(channels.count) if c not in fixed and torch.rand((), generator=generator) < share}
    for name, numbers in channels.outputs.items():
        module = model.get_submodule(name)
        for w in [] if isinstance(module, nn.PReLU) else module.parameters(recurse=False):
            mask = torch.tensor([int(c) in chosen for c in numbers])
            w[(slice(None), mask) if isinstance(module, nn.ConvTranspose2d) and w.dim() > 1 else mask] = 0
    return chosen


@torch.no_grad()
def empty_filters(model: nn.Module, share: float, seed: int = 0) -> None:
    """Zero the weights of some filters of each layer, as groups='filter' does; biases and norms stay."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            module.weight[torch.rand(len(module.weight), generator=generator) < share] = 0


@pytest.fixture(params=NETWORKS)
def style(request: pytest.FixtureRequest) -> str:
    """The name of each of the networks."""
    return str(request.param)


@pytest.fixture
def zoo() -> SimpleNamespace:
    """What the tests make networks and zeros with."""
    return SimpleNamespace(network=network, empty_channels=empty_channels, empty_filters=empty_filters)
