"""Ranks that are killed, and what the others do."""

import os
import signal
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import rvsm
from splitting.sharded.checkpoints import MAKE, everything, resume, uninterrupted
from splitting.sharded.comparing import equal, raises, weights
from splitting.sharded.models import SLOW, batches, optimizer_of, perceptron, shard, step, train
from splitting.sharded.runs import on


@on("four")
def those_who_lose_a_rank_stop_with_an_error() -> None:
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("one", "two"))
    model = shard(perceptron(), mesh=mesh["two"])
    method = train(model, rvsm.RVSM(model, "l0", groups="channel", include=["0.weight"], **SLOW), 3)
    optimizer = optimizer_of(model)
    method.detach()
    method.attach(optimizer)
    if rank == 1:  # in a step, after its backward pass
        optimizer.register_step_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    if rank in (0, 1):
        raises(RuntimeError, "", lambda: [step(model, optimizer, x) for x in batches(model)])
    else:  # in an evaluation

        def evaluate() -> None:
            with method.sparse_weights():
                if rank == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                model(next(batches(model)))

        raises(RuntimeError, "", evaluate)
    saved_by_two(mesh["one"])


def saved_by_two(mesh: DeviceMesh) -> None:
    """Two ranks are left: they save a checkpoint, and one of them dies while it writes the next one."""
    make, model = MAKE["rvsm"], shard(perceptron(), mesh=mesh)
    method, optimizer = make(model), optimizer_of(model)
    method.attach(optimizer)
    for i, x in enumerate(batches(model), 1):
        step(model, optimizer, x)
        if i == 3:
            good = Path("four/rvsm-3")
            dcp.save(everything(model, optimizer, method), checkpoint_id=good, process_group=mesh.get_group())

    class Writer(dcp.FileSystemWriter):
        def write_data(self, *args: Any, **kwargs: Any) -> Any:
            if dist.get_rank() == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write_data(*args, **kwargs)

    raises(
        BaseException,
        "",
        lambda: dcp.save(
            everything(model, optimizer, method),
            storage_writer=Writer(Path("four/bad")),
            process_group=mesh.get_group(),
        ),
    )
    assert not Path("four/bad/.metadata").exists()


@on("last")
def the_checkpoint_before_the_one_that_was_interrupted_can_be_loaded() -> None:
    found = weights(resume(Path("four/rvsm-3"), MAKE["rvsm"], 3, lambda model: model))
    for name, w in weights(uninterrupted(MAKE["rvsm"])).items():
        equal(found[name], w, name, exact=True)
