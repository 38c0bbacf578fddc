"""Fine-tune a dense checkpoint to 90 % zeros, in a third of its original training epochs, and save it for the Hub."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rvsm


def network() -> nn.Sequential:
    """Return an untrained network."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
    """Train for some epochs; both trainings use this loop."""
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()


def accuracy(model: nn.Module) -> float:
    """Return the fraction of digits that are recognised."""
    return float((model(x[1400:]).argmax(1) == y[1400:]).float().mean())


torch.manual_seed(0)
data = load_digits()
x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=64, shuffle=True)

dense = network()
train(dense, torch.optim.SGD(dense.parameters(), lr=0.1, momentum=0.9), epochs=30)
torch.save(dense.state_dict(), "dense.pt")
print(f"dense: {accuracy(dense):.1%}")

model = network()
model.load_state_dict(torch.load("dense.pt", weights_only=True))
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)  # less than at first: it is trained already
sparsifier = rvsm.RVSM(model, "l0", sparsity=0.9, steps=10 * len(loader)).attach(optimizer)
train(model, optimizer, epochs=10)
sparsifier.finalize()

found = accuracy(model)
print(f"with {sparsifier.statistics().sparsity:.1%} zeros: {found:.1%}")
rvsm.integrations.save_pretrained(model, "digits", sparsifier=sparsifier, example_input=x[:1], accuracy=found)
