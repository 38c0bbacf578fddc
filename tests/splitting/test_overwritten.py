"""Weights that somebody writes into the model after its zeros were fixed: the zeros that were asked for stay."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import rvsm
from networks import perceptron
from rvsm.splitting import Method

STEPS = 40
METHODS: dict[str, Callable[[nn.Module], Method]] = {
    "rvsm": lambda m: rvsm.RVSM(m, "l0", sparsity=0.9, steps=STEPS),
    "magnitude": lambda m: rvsm.Magnitude(m, sparsity=0.9, steps=STEPS),
    "admm": lambda m: rvsm.ADMM(m, sparsity=0.9, rho=0.1, retrain=0.3, steps=STEPS),
}
OVERWRITTEN = "weights that should be zero were not, .* now set to zero without healing"


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, after: Callable[[], Any] = int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
        after()


def zeros(model: nn.Module) -> int:
    return sum(int((w == 0).sum()) for w in weights(model))


def weights(model: nn.Module) -> list[Tensor]:
    return [w.detach() for w in model.parameters() if w.dim() > 1]


WANTED = round(0.9 * (20 * 30 + 30 * 10))


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("saved_at", [1, STEPS // 4])
@pytest.mark.parametrize("method", METHODS)
def test_a_dense_checkpoint_is_cut_when_it_is_finalized(method: str, saved_at: int, assign: bool) -> None:
    model = perceptron()
    optimizer = adamw(model)
    sparsifier = METHODS[method](model).attach(optimizer)
    train(model, optimizer, saved_at)
    best = copy.deepcopy(model.state_dict())
    train(model, optimizer, STEPS - saved_at)
    model.load_state_dict(best, assign=assign)
    assert zeros(model) < WANTED
    assert sum(layer.zeros for layer in sparsifier.statistics().layers) == WANTED
    with sparsifier.sparse_weights():
        assert zeros(model) == WANTED
    with pytest.warns(UserWarning, match=OVERWRITTEN):
        sparsifier.finalize()
    assert zeros(model) == WANTED
    for w, loaded in zip(weights(model), (best["0.weight"], best["2.weight"]), strict=True):
        assert torch.equal(w, loaded.masked_fill(w == 0, 0))
    train(model, adamw(model), 3)
    assert zeros(model) == WANTED, "they are held in the present tensors"


def test_the_best_checkpoint_comes_back_with_the_state_that_belongs_to_it() -> None:
    """Then the zeros are chosen by the weights as they are, as whenever a training is ended early."""
    model = perceptron()
    optimizer = adamw(model)
    sparsifier = METHODS["rvsm"](model).attach(optimizer)
    train(model, optimizer, 10)
    best, state = copy.deepcopy(model.state_dict()), sparsifier.state_dict()
    train(model, optimizer, STEPS - 10)
    model.load_state_dict(best)
    sparsifier.load_state_dict(state)
    with pytest.warns(UserWarning, match=f"finalized at step 10 of {STEPS}"):
        sparsifier.finalize()
    assert zeros(model) == WANTED
    for w, i in zip(weights(model), (0, 2), strict=True):
        magnitudes = best[f"{i}.weight"].abs()
        assert magnitudes[w == 0].max() <= magnitudes[w != 0].min()


def test_an_average_of_all_weights_is_cut_when_it_is_finalized() -> None:
    model = perceptron()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = adamw(model)
    sparsifier = METHODS["rvsm"](model).attach(optimizer)
    train(model, optimizer, STEPS, after=lambda: average.update_parameters(model))
    trained = [w == 0 for w in weights(model)]
    model.load_state_dict(average.module.state_dict())
    assert zeros(model) < 10
    with pytest.warns(UserWarning, match=OVERWRITTEN):
        sparsifier.finalize()
    assert all(torch.equal(w == 0, mask) for w, mask in zip(weights(model), trained, strict=True))


def test_a_layer_that_is_frozen_while_it_heals_is_cut_again_and_counted_in_the_warning() -> None:
    model = perceptron()
    optimizer = adamw(model)
    sparsifier = METHODS["rvsm"](model).attach(optimizer)
    train(model, optimizer, STEPS)
    gone = int((model[0].weight == 0).sum())
    model[0].weight.requires_grad_(False).fill_(1.0)
    with pytest.warns(UserWarning, match="frozen"), pytest.warns(UserWarning, match=f"^{gone} {OVERWRITTEN}"):
        sparsifier.finalize()
    assert zeros(model) == WANTED


def test_pruning_that_ends_early_counts_the_zeros_it_has_fixed() -> None:
    model = perceptron()
    optimizer = adamw(model)
    sparsifier = METHODS["magnitude"](model).attach(optimizer)
    train(model, optimizer, STEPS // 4)
    model.load_state_dict(perceptron().state_dict())
    with pytest.warns(UserWarning, match="finalized at step 10"), pytest.warns(UserWarning, match=OVERWRITTEN):
        sparsifier.finalize()
    assert zeros(model) == WANTED


@pytest.mark.parametrize("method", METHODS)
def test_tensors_replaced_while_it_heals_are_held_after_attaching_again(method: str) -> None:
    model = perceptron()
    optimizer = adamw(model)
    sparsifier = METHODS[method](model).attach(optimizer)
    train(model, optimizer, STEPS - 4)
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    sparsifier.detach()
    optimizer = adamw(model)
    sparsifier.attach(optimizer)
    train(model, optimizer, 4, after=lambda: zeros(model) == WANTED or pytest.fail("a zero has grown"))
    sparsifier.finalize()
    assert zeros(model) == WANTED


def test_a_weight_that_the_new_optimizer_does_not_hold_keeps_its_zeros_when_finalized() -> None:
    model = perceptron()
    optimizer = adamw(model)
    sparsifier = METHODS["rvsm"](model).attach(optimizer)
    train(model, optimizer, STEPS)
    sparsifier.detach()
    with pytest.warns(UserWarning, match=r"not in the optimizer and stay unchanged: 0\.weight"):
        sparsifier.attach(torch.optim.AdamW(model[2].parameters(), lr=1e-2))
    sparsifier.finalize()
    train(model, adamw(model), 3)
    assert zeros(model) == WANTED


def test_a_layer_of_another_shape_is_refused() -> None:
    model = perceptron()
    optimizer = adamw(model)
    sparsifier = METHODS["rvsm"](model).attach(optimizer)
    train(model, optimizer, STEPS - 4)
    model[2] = nn.Linear(30, 5)
    refused = r"'2\.weight' had shape \[10, 30\] but now has \[5, 30\]; release\(\) this method"
    with pytest.raises(ValueError, match=refused):
        sparsifier.finalize()
    sparsifier.detach()
    with pytest.raises(ValueError, match=refused):
        sparsifier.attach(adamw(model))
    sparsifier.release()
    rvsm.RVSM(model, "l0", sparsity=0.9, steps=STEPS).attach(adamw(model))
