"""Zeros of a sparsified model in copies and averages of it."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import rvsm
from networks import perceptron

STEPS = 40


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 20)).square().mean().backward()
    optimizer.step()


def trained(finalized: bool) -> tuple[nn.Sequential, rvsm.RVSM, AveragedModel]:
    model = perceptron()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = sgd(model)
    sparsifier = rvsm.RVSM(model, "l0", sparsity=0.9, steps=STEPS).attach(optimizer)
    for _ in range(STEPS):
        step(model, optimizer)
        average.update_parameters(model)
    if finalized:
        sparsifier.finalize()
    return model, sparsifier, average


def same_zeros(model: nn.Module, other: nn.Module) -> bool:
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return all(torch.equal(p == 0, q == 0) for p, q in pairs if p.dim() > 1)


@pytest.mark.parametrize("finalized", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_average_of_the_whole_training_gets_the_zeros_and_keeps_them(finalized: bool, wrapped: bool) -> None:
    model, sparsifier, average = trained(finalized)
    before = copy.deepcopy(average.module.state_dict())
    assert before["0.weight"].all()
    sparsifier.apply_zeros(average if wrapped else average.module)
    assert same_zeros(model, average.module)
    for name, value in average.module.state_dict().items():
        kept = value != 0
        assert torch.equal(value[kept], before[name][kept])
    average.update_parameters(model)
    assert same_zeros(model, average.module)


def test_a_copy_that_got_the_zeros_keeps_them_in_training() -> None:
    model, sparsifier, _ = trained(finalized=True)
    dense = perceptron()
    sparsifier.apply_zeros(dense)
    rvsm.keep_zeros(dense)
    step(dense, sgd(dense))
    assert same_zeros(model, dense)


def test_keeping_the_zeros_of_an_average_that_has_none_warns() -> None:
    _, _, average = trained(finalized=True)
    with pytest.warns(UserWarning, match=r"found no zeros to keep; .*sparsifier\.apply_zeros\(copy\)"):
        rvsm.keep_zeros(average)


def test_zeros_that_are_not_fixed_yet_are_refused() -> None:
    model = perceptron()
    sparsifier = rvsm.RVSM(model, "l0", sparsity=0.9, steps=STEPS).attach(sgd(model))
    with pytest.raises(RuntimeError, match="no zeros are fixed yet; call apply_zeros during the phase 'heal'"):
        sparsifier.apply_zeros(copy.deepcopy(model))


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (nn.Sequential(nn.Linear(20, 30)), "none of that name"),
        (nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5)), r"\[5, 30\]"),
    ],
)
def test_another_model_is_refused_and_left_as_it_is(other: nn.Module, found: str) -> None:
    _, sparsifier, _ = trained(finalized=True)
    with pytest.raises(ValueError, match=rf"a parameter '2\.weight' of shape \[10, 30\] but found {found}"):
        sparsifier.apply_zeros(other)
    assert all(p.all() for p in other.parameters())
