"""Accelerate: attach the sparsifier to the prepared optimizer, and save its state in checkpoints."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rvsm

EPOCHS = 10

torch.manual_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2)
data = load_digits()
x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

steps = EPOCHS * -(-len(loader) // accelerator.gradient_accumulation_steps)
sparsifier = rvsm.RVSM(model, "l0", sparsity=0.9, steps=steps).attach(optimizer)
accelerator.register_for_checkpointing(sparsifier)

for epoch in range(EPOCHS):
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    accelerator.save_state(f"checkpoints/{epoch}")
    with sparsifier.sparse_weights(), torch.no_grad():
        accuracy = (model(x[1400:].to(accelerator.device)).argmax(1).cpu() == y[1400:]).float().mean()
    zeros = sparsifier.statistics().sparsity
    accelerator.print(f"epoch {epoch}: {zeros:.1%} zeros, accuracy of the sparse copy {accuracy:.1%}")
sparsifier.finalize()
