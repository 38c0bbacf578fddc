"""Train a model whose parameters are sharded over several processes with FSDP2.

torchrun --nproc-per-node 2 train_fsdp.py
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import rvsm

EPOCHS = 4

dist.init_process_group("gloo")  # "nccl" on GPUs
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # all ranks begin with the same weights
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
labels = torch.tensor(digits.target)


def build() -> tuple[nn.Module, torch.optim.Optimizer, rvsm.RVSM]:
    """Return a sharded model, its optimizer, and the sparsifier of its weights."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    for layer in (model[0], model[2], model):  # the root takes what is left
        fully_shard(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = rvsm.RVSM(model, "l0", sparsity=0.9, steps=EPOCHS * 21).attach(optimizer)
    return model, optimizer, sparsifier


def train(epoch: int) -> None:
    """Train one epoch: of each batch of 64, every rank takes its part."""
    order = torch.randperm(1344, generator=torch.Generator().manual_seed(epoch))
    for batch in order.split(64):
        mine = batch[rank::ranks]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
        optimizer.step()


def checkpoint() -> dict[str, object]:
    """Return what a checkpoint holds: all of it can be loaded on another number of processes."""
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer, "sparsifier": sparsifier.portable()}


model, optimizer, sparsifier = build()
for epoch in range(EPOCHS // 2):
    train(epoch)
dcp.save(checkpoint(), checkpoint_id="checkpoint")

model, optimizer, sparsifier = build()  # as after a restart, with any number of processes
loaded = checkpoint()
dcp.load(loaded, checkpoint_id="checkpoint")
set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
for epoch in range(EPOCHS // 2, EPOCHS):
    train(epoch)
sparsifier.finalize()

statistics = sparsifier.statistics()  # every rank must ask, and gets the same answer
accuracy = (model(images[1344:]).argmax(1) == labels[1344:]).float().mean()
if rank == 0:
    print(statistics)
    print(f"accuracy with {statistics.sparsity:.1%} zeros, sharded over {ranks} processes: {accuracy:.1%}")
dist.destroy_process_group()
