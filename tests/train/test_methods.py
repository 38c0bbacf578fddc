"""Real training on digits by every method, optimizer and schedule."""

from itertools import cycle
from typing import Any

import pytest
import torch

from rvsm import splitting
from rvsm.config import read_config
from rvsm.optimizers import OPTIMIZERS
from rvsm.schedules import SCHEDULES

LEARNING = ["--model.width", "8", "--training.epochs", "4", "--training.batch", "64"]
METHODS: dict[str, list[str]] = {
    "dense": [],
    "rvsm": ["--budget.sparsity", "0.9"],
    "admm": ["--method.rho", "0.1", "--method.sparsity", "0.6"],
    "proxsgd": ["--penalty.name", "l1", "--penalty.lam", "0.02"],
    "magnitude": ["--budget.sparsity", "0.9"],
    "acdc": ["--budget.sparsity", "0.9", "--method.cycles", "3"],
}
KEYS = {
    *("step", "epoch", "learning_rate", "loss", "accuracy", "w", "u", "phase", "sparsity", "sparsity_of_all", "gap"),
    *("lagrangian", "lam", "threshold", "layers", "histogram", "images_per_second", "seconds", "time_left", "times"),
    "memory",
}


def test_every_method_is_tried() -> None:
    assert set(METHODS) == {"dense", *splitting.METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_learns_and_is_sparse(method: str, train: Any) -> None:
    run = train(read_config(flags=[*LEARNING, "--method.name", method, *METHODS[method]]))
    result, weights = run.result(), run.weights()
    assert result["test"]["u"]["accuracy"] > 0.8
    assert result["test"]["w"]["accuracy"] > 0.8
    assert [record["epoch"] for record in run.metrics()] == [1, 2, 3, 4]
    held = [weights[name] for name in result["layers"]]
    zeros = sum(int((w == 0).sum()) for w in held)
    total = sum(w.numel() for w in held)
    assert result["weights"] == total
    assert result["sparsity"] == pytest.approx(zeros / total, abs=1e-12)
    if method in ("rvsm", "magnitude", "acdc"):
        assert zeros == round(0.9 * total)
    if method == "admm":
        assert zeros / total == pytest.approx(0.6, abs=1e-3)
    if method == "proxsgd":
        assert zeros / total > 0.1
    if method == "dense":
        assert zeros == 0
    for name, layer in result["layers"].items():
        assert layer["density"] == pytest.approx(float((weights[name] != 0).float().mean()), abs=1e-6)
    expected = KEYS if method != "dense" else {key for key in KEYS if key not in METHOD_KEYS}
    for record in run.metrics():
        assert set(record) == expected
        assert record["images_per_second"] > 0
        assert set(record["times"]) >= {"data", "training", "evaluation"}


METHOD_KEYS = {
    "u",
    "phase",
    "sparsity",
    "sparsity_of_all",
    "gap",
    "lagrangian",
    "lam",
    "threshold",
    "layers",
    "histogram",
}


@pytest.mark.parametrize(("optimizer", "schedule"), list(zip(cycle(OPTIMIZERS), SCHEDULES, strict=False)))
def test_every_optimizer_and_schedule(optimizer: str, schedule: str, train: Any) -> None:
    rate = {"sgd": "0.1", "adamw": "0.01"}[optimizer]
    flags = ["--optimizer.name", optimizer, "--optimizer.lr", rate, "--schedule.name", schedule]
    config = read_config(flags=[*LEARNING, *flags, "--training.epochs", "3", "--budget.sparsity", "0.4"])
    run = train(config)
    assert run.result()["test"]["u"]["accuracy"] > 0.8
    # The rate of an epoch's last step is that of the schedule.
    made = SCHEDULES[schedule]()
    steps = run.result()["steps"]
    for record in run.metrics():
        assert record["learning_rate"] == float(rate) * made.factor((record["step"] - 1) / steps)


NOT_LAST = ["--method.exclude", '["11.*"]']  # whose filters are the classes


@pytest.mark.parametrize("groups", ["filter", "block"])
def test_groups(groups: str, train: Any) -> None:
    run = train(read_config(flags=[*LEARNING, "--groups.name", groups, "--budget.sparsity", "0.5", *NOT_LAST]))
    assert run.result()["sparsity"] == pytest.approx(0.5, abs=0.05)
    assert run.result()["test"]["u"]["accuracy"] > 0.8
    w = run.weights()["3.weight"]
    if groups == "filter":
        gone = (w == 0).flatten(1)
        assert torch.equal(gone.any(1), gone.all(1))


def test_a_budget_of_multiplications(train: Any) -> None:
    run = train(read_config(flags=[*LEARNING, "--budget.sparsity", "0.7", "--budget.by", "flops"]))
    assert run.result()["test"]["u"]["accuracy"] > 0.8
    # of the convolutions: 64 positions for the first two, 16 for the third, one for the linear layer
    weights = run.weights()
    uses = {"0.weight": 64, "3.weight": 64, "7.weight": 16, "11.weight": 1}
    total = sum(uses[name] * weights[name].numel() for name in uses)
    gone = sum(uses[name] * int((weights[name] == 0).sum()) for name in uses)
    assert gone / total == pytest.approx(0.7, abs=1e-3)


def test_bfloat16(train: Any) -> None:
    flags = ["--training.precision", "bfloat16", "--training.epochs", "3", "--budget.sparsity", "0.4"]
    run = train(read_config(flags=[*LEARNING, *flags]))
    assert run.about()["precision"] == "bfloat16"
    assert run.result()["test"]["u"]["accuracy"] > 0.8
    assert all(w.dtype != torch.bfloat16 for w in run.weights().values())


def test_seeds_differ_and_repeat(small: Any, train: Any) -> None:
    one, again, other = (train(small("--seed", seed)).weights()["0.weight"] for seed in ("0", "0", "1"))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_channels_that_span_layers(train: Any) -> None:
    pytest.importorskip("torch_pruning")
    config = read_config(flags=[*LEARNING, "--groups.name", "coupled", "--budget.sparsity", "0.5"])
    with pytest.warns(UserWarning, match="channels of 1 of the selected weights must stay"):
        run = train(config)
    result = run.result()
    assert {name.rpartition(".")[2] for name in result["layers"]} == {"weight", "bias"}  # batch norms are part of it
    assert result["sparsity"] == pytest.approx(0.5, abs=0.05)
    assert result["test"]["u"]["accuracy"] > 0.5
