"""Structured pruning: prune channels of a residual network during training, shrink it, and continue training."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rvsm

EPOCHS = 5


class Residual(nn.Module):
    """Two convolutions whose result is added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x + inner(x))."""
        return torch.relu(x + self.inner(x))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
    """Train a network."""
    model.train()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def accuracy(model: nn.Module) -> Tensor:
    """Return the fraction of test images that a network classifies correctly."""
    return (model.eval()(images[1400:]).argmax(1) == labels[1400:]).float().mean()


torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=64, shuffle=True)

model = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
    Residual(24), Residual(24), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
sparsifier = rvsm.RVSM(
    model, "l0", sparsity=0.5, steps=EPOCHS * len(loader), groups="coupled", example_input=images[:1],
    exclude=["8.weight"],  # the last layer, whose outputs are the classes
).attach(optimizer)  # fmt: skip
train(model, optimizer, EPOCHS)
sparsifier.finalize(recalibrate=loader)

smaller, optimizer = rvsm.shrink(model, images[:1], optimizer=optimizer)
difference = (smaller.eval()(images) - model.eval()(images)).abs().max()
print(f"largest difference of the outputs: {difference:.0e}")
train(smaller, optimizer, 1)
before, after = (sum(w.numel() for w in network.parameters()) for network in (model, smaller))
print(f"{before} parameters became {after}; accuracy: {accuracy(smaller):.1%}")
