"""A model whose sparsifier or handle nobody has any more can be had for another."""

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import rvsm


@pytest.fixture(autouse=True)
def without_the_garbage_collector() -> Iterator[None]:
    """What is out of scope must not depend on when the collector happens to run."""
    gc.disable()
    yield
    gc.enable()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def sparsifier(model: nn.Module) -> rvsm.RVSM:
    return rvsm.RVSM(model, "l0", sparsity=0.5, steps=20)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()


def test_a_sparsifier_that_went_out_of_scope_with_its_optimizer_is_not_in_the_way() -> None:
    model = nn.Linear(16, 10)

    def trial() -> None:
        optimizer = sgd(model)
        torch.optim.lr_scheduler.StepLR(optimizer, 10)  # makes a circle of references of its own
        sparsifier(model).attach(optimizer)
        train(model, optimizer)

    trial()
    trial()


def test_a_sparsifier_that_lives_in_its_optimizer_is_released() -> None:
    model = nn.Linear(16, 10)
    optimizer = sgd(model)
    sparsifier(model).attach(optimizer)
    train(model, optimizer, 20)
    with pytest.raises(RuntimeError, match=r"an attached rvsm already acts on.*rvsm\.release\(model\)"):
        sparsifier(model).attach(sgd(model))
    rvsm.release(model)
    assert int((model.weight == 0).sum()) == 80, "the weights stay as they are"
    train(model, optimizer)
    assert model.weight.all()
    assert sparsifier(model).attach(sgd(model)).step == 0


@pytest.mark.parametrize("pairs", [False, True])
def test_zeros_that_nobody_has_a_handle_of_are_released(pairs: bool) -> None:
    model = nn.Linear(16, 10)
    model.weight.data[:, ::2] = 0
    rvsm.keep_zeros(model)
    with pytest.raises(RuntimeError, match=r"zeros of 'weight' are held.*rvsm\.release\(model\)"):
        sparsifier(model).attach(sgd(model))
    rvsm.release(model.named_parameters() if pairs else model)
    train(model, sgd(model))
    assert model.weight.all()
    assert model.weight.grad is not None
    assert model.weight.grad.all()
    sparsifier(model).attach(sgd(model))


def test_other_models_stay_as_they_are() -> None:
    model, other = nn.Linear(16, 10), nn.Linear(16, 10)
    method = sparsifier(other).attach(sgd(other))
    other.weight.data[:, ::2] = 0
    rvsm.keep_zeros(other)
    rvsm.release(model)
    train(other, sgd(other))
    assert not other.weight[:, ::2].any()
    with pytest.raises(RuntimeError, match="already attached"):
        method.attach(sgd(other))
