"""Checkpoints of torch.distributed, saved by some processes and resumed by more or fewer."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import rvsm
from rvsm.splitting import Method
from rvsm.splitting.shards import local
from splitting.sharded.comparing import equal, weights
from splitting.sharded.models import SLOW, SLOW_STEPS, Make, batches, optimizer_of, perceptron, shard, step, train
from splitting.sharded.runs import on

MAKE: dict[str, Make] = {
    "rvsm": lambda m: rvsm.RVSM(m, "l0", **SLOW),
    "printed": lambda m: rvsm.RVSM(m, "l0", order="printed", **SLOW),
    "admm": lambda m: rvsm.ADMM(m, sparsity=0.6, rho=0.1, interval=3, steps=SLOW_STEPS, retrain=0.2),
    "channels": lambda m: rvsm.RVSM(m, "l0", groups="channel", include=["0.weight", "2.weight"], **SLOW),
}
SAVED = [("rvsm", 3), ("rvsm", 7), ("printed", 5), ("admm", 4), ("channels", 3)]
"""After how many steps the checkpoints are saved: in the ramp, on hold, and while the zeros are fixed."""


def everything(model: nn.Module, optimizer: torch.optim.Optimizer, method: Method) -> dict[str, Any]:
    """Return what a checkpoint holds: the model, the optimizer and the method."""
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer, "sparsifier": method.portable()}


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, method: Method) -> None:
    """Load a checkpoint into objects that have just been made."""
    found = everything(model, optimizer, method)
    dcp.load(found, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])


def resume(path: Path, make: Make, begin: int, sharded: Callable[[nn.Sequential], nn.Sequential]) -> nn.Sequential:
    """Return a model that has been trained to the end from a checkpoint."""
    model = sharded(perceptron())
    with torch.no_grad():
        for w in model.parameters():
            local(w).zero_()  # so that what is right came from the checkpoint
    method, optimizer = make(model), optimizer_of(model)
    load(path, model, optimizer, method)
    method.attach(optimizer)
    assert bool(method.state_dict()["support"]) == (begin > 6)  # in the phase "heal"
    for i, x in enumerate(batches(model, SLOW_STEPS)):
        if i >= begin:
            step(model, optimizer, x)
    method.finalize()
    return model


def uninterrupted(make: Make) -> nn.Sequential:
    model = perceptron()
    train(model, make(model), SLOW_STEPS).finalize()
    return model


def resumed_alike(folder: Path, sharded: Callable[[nn.Sequential], nn.Sequential]) -> None:
    """Resume each checkpoint in a folder, and compare with a training of one process that was not interrupted."""
    expected = {name: weights(uninterrupted(make)) for name, make in MAKE.items()}
    for name, begin in SAVED:
        found = weights(resume(folder / f"{name}-{begin}", MAKE[name], begin, sharded))
        for key, w in expected[name].items():
            equal(found[key], w, f"{key} of {name}, saved after {begin} steps", exact=name != "channels")


def save_all(folder: Path, sharded: Callable[[nn.Sequential], nn.Sequential]) -> None:
    """Save the checkpoints of several trainings."""
    for name, make in MAKE.items():
        model = sharded(perceptron())
        method, optimizer = make(model), optimizer_of(model)
        method.attach(optimizer)
        last = max(i for saved, i in SAVED if saved == name)
        for i, x in enumerate(batches(model, last), 1):
            step(model, optimizer, x)
            if (name, i) in SAVED:
                dcp.save(everything(model, optimizer, method), checkpoint_id=folder / f"{name}-{i}")


@on("one")
def one_process_saves_checkpoints_in_each_phase() -> None:
    save_all(Path("one"), lambda model: model)


@on("two")
def two_processes_save_checkpoints_in_each_phase() -> None:
    save_all(Path("two"), shard)


@on("two")
def a_state_is_loaded_by_the_same_processes_without_files() -> None:
    for make in MAKE.values():
        model, again = shard(perceptron()), shard(perceptron())
        method, optimizer = make(model), optimizer_of(model)
        method.attach(optimizer)
        for x in batches(model, 5):
            step(model, optimizer, x)
        other, another = make(again), optimizer_of(again)
        again.load_state_dict(model.state_dict())
        another.load_state_dict(deepcopy(optimizer.state_dict()))  # it keeps the tensors that it gets
        other.load_state_dict(method.state_dict())
        other.attach(another)
        for x in batches(model, 3):
            step(model, optimizer, x), step(again, another, x)
        assert all(torch.equal(a, b) for a, b in zip(weights(model).values(), weights(again).values(), strict=True))


@on("four")
def four_processes_resume_what_two_have_saved() -> None:
    resumed_alike(Path("two"), shard)


@on("two")
def two_processes_resume_what_one_has_saved() -> None:
    resumed_alike(Path("one"), shard)


@on("last")
def one_process_resumes_what_two_have_saved() -> None:
    resumed_alike(Path("two"), lambda model: model)
