"""Other meshes than one of all ranks, and other divisions than by rows."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import rvsm
from splitting.sharded.comparing import compare, raises
from splitting.sharded.models import SCHEDULE, Make, optimizer_of, perceptron, shard
from splitting.sharded.runs import on


@on("four")
def shards_can_be_replicated() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for groups in ("element", "channel"):
        named = {"groups": groups, "include": ["0.weight", "2.weight"]}
        make: Make = lambda m, o=named: rvsm.RVSM(m, "l0", **o, **SCHEDULE)  # type: ignore[misc] # noqa: E731
        compare(make, perceptron, lambda m: shard(m, mesh=mesh), exact=groups == "element")


@on("two")
def tensor_parallel_layers_are_divided_along_either_dimension() -> None:
    mesh = init_device_mesh("cpu", (2,))

    def parallel(model: nn.Sequential) -> nn.Sequential:
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return model

    def wide() -> nn.Sequential:
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Linear(13, 10), nn.ReLU(), nn.Linear(10, 3))

    for groups in ("element", "filter", "channel", "row", "column", "block"):
        named = {"groups": groups, "include": ["0.weight", "2.weight"]}
        make: Make = lambda m, o=named: rvsm.RVSM(m, "l0", **o, **SCHEDULE)  # type: ignore[misc] # noqa: E731
        compare(make, wide, parallel, exact=False)


@on("four")
def layers_on_different_processes_are_refused() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = perceptron()
    fully_shard(model[0], mesh=mesh["shard"])
    fully_shard(model[2])
    method = rvsm.RVSM(model, "l0", **SCHEDULE)
    raises(ValueError, "give all sharded layers of a method the same mesh", lambda: method.attach(optimizer_of(model)))
