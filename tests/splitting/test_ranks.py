"""Two real processes train one model, and finalize it alike."""

import os
import subprocess
import sys
from pathlib import Path

import torch

import rvsm

SCRIPT = """
import sys
from datetime import timedelta
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import rvsm

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=30)
)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
sparsifier = rvsm.RVSM(parallel, "l0", sparsity=0.5, steps=10).attach(optimizer)
data = torch.load(f"{folder}/data.pt")[rank]
for x in data[:10]:
    optimizer.zero_grad()
    parallel(x).square().mean().backward()
    optimizer.step()
if rank == 0:  # alone: the other one waits for nothing here
    with sparsifier.sparse_weights(recalibrate=data):
        model.eval()(data[0])
before = model[1].running_mean.clone()
try:
    sparsifier.finalize(recalibrate=data if rank == 0 else [])
except (ValueError, RuntimeError) as error:
    print(type(error).__name__, error)
assert torch.equal(model[1].running_mean, before)
# Two batches on one rank, three on the other.
sparsifier.finalize(recalibrate=data[: 2 + rank])
torch.save(model.state_dict(), f"{folder}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


def test_every_rank_has_the_statistics_of_all_batches(tmp_path: Path) -> None:
    data = [torch.randn(12, 16, 4), 3 + torch.randn(12, 16, 4)]
    torch.save([list(part) for part in data], tmp_path / "data.pt")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", SCRIPT, str(rank), str(tmp_path)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert "RuntimeError 1 of the other ranks failed here" in said[0]
    assert "ValueError recalibrate got no batches" in said[1]
    states = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model.load_state_dict(states[0])
    rvsm.recalibrate(model, [*data[0][:2], *data[1][:3]])
    torch.testing.assert_close(model[1].running_mean, states[0]["1.running_mean"])
    torch.testing.assert_close(model[1].running_var, states[0]["1.running_var"])
    assert model[1].num_batches_tracked == states[0]["1.num_batches_tracked"] == 5
