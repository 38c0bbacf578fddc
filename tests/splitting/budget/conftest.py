"""Trainings whose zeros are counted."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import rvsm
from rvsm.splitting import Method


class Training:
    """A small network that learns, in a few steps, images whose class is a colour of its own."""

    steps = 10

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        colours = torch.randn(10, 3, 1, 1, generator=generator)
        self.classes = torch.arange(16) % 10
        self.images = colours[self.classes] + 0.5 * torch.randn(16, 3, 8, 8, generator=generator)
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4
        )

    def attach(self, make: Callable[..., Method], **options) -> Method:
        return make(self.model, **options).attach(self.optimizer)

    def run(self, steps: int, after: Callable[[], None] = int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(self.images), self.classes).backward()
            self.optimizer.step()
            after()

    def finish(self, make: Callable[..., Method], **options) -> Method:
        """Train to the end and finalize."""
        sparsifier = self.attach(make, **options)
        self.run(self.steps)
        sparsifier.finalize(recalibrate=self.images)
        return sparsifier

    @property
    def weights(self) -> dict[str, Tensor]:
        """The present weights, by name."""
        return {name: w.detach() for name, w in self.model.named_parameters() if w.dim() > 1}

    @property
    def copies(self) -> dict[str, Tensor]:
        """The weights of this moment."""
        return {name: w.clone() for name, w in self.weights.items()}

    @property
    def zeros(self) -> int:
        return sum(map(rvsm.metrics.zeros, self.weights.values()))

    @property
    def size(self) -> int:
        return sum(w.numel() for w in self.weights.values())


@pytest.fixture
def training() -> Training:
    return Training()


@pytest.fixture
def still() -> Callable[..., Method]:
    """Make a method and take steps that move no weight, so that what it sets can be counted exactly."""

    def make(
        ws: dict[str, Tensor], kind: type[Method], at: int = 9, after: Callable[[Method], object] = id, **options
    ) -> Method:
        pairs = [(name, nn.Parameter(w.clone())) for name, w in ws.items()]
        optimizer = torch.optim.SGD([w for _, w in pairs], lr=0.0)
        if kind is rvsm.RVSM:
            options.setdefault("beta", 1.0)
        sparsifier = kind(pairs, **options).attach(optimizer)
        for _ in range(at):
            for _, w in pairs:
                w.grad = torch.zeros_like(w)
            optimizer.step()
            after(sparsifier)
        return sparsifier

    return make
