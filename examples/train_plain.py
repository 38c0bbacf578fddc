"""A plain training loop: classify handwritten digits with 90 % zeros, and pack the network into one file."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rvsm

EPOCHS = 10

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=64, shuffle=True)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(128, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
sparsifier = rvsm.RVSM(model, "l0", sparsity=0.9, steps=EPOCHS * len(loader)).attach(optimizer)

for _ in range(EPOCHS):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
sparsifier.finalize(recalibrate=loader)

model.eval()
accuracy = (model(images[1400:]).argmax(1) == labels[1400:]).float().mean()
print(sparsifier.statistics())
print(f"accuracy with {sparsifier.statistics().sparsity:.1%} zeros: {accuracy:.1%}")
rvsm.compile(model, images[:1]).save("digits.rvsm")
np.savez("digits.npz", images=images[1400:], labels=labels[1400:])  # for run_without_torch.py
