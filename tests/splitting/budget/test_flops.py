"""Targets that count multiplications."""

import re
from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
import torch
from torch import Tensor

import rvsm
from rvsm.splitting import METHODS

# The multiplications of a weight for one image of 8×8, by hand: a convolution's output positions, one of a linear.
MULTIPLICATIONS = {"0.weight": 64, "3.weight": 16, "8.weight": 1}


def multiplied(weights: dict[str, Tensor], *, only: Callable[[Tensor], Tensor]) -> int:
    return sum(MULTIPLICATIONS[name] * int(only(w).sum()) for name, w in weights.items())


def saved(weights: dict[str, Tensor]) -> float:
    """Return the share of the multiplications whose weight is zero."""
    return multiplied(weights, only=lambda w: w == 0) / multiplied(weights, only=torch.ones_like)


@pytest.mark.parametrize("sparsity", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("method", ["rvsm", "magnitude"])
def test_a_target_by_flops_is_met_to_a_tenth_of_a_point(
    training: Any, method: str, scope: str, sparsity: float
) -> None:
    budget = rvsm.Budget(sparsity, training.steps, scope=scope, by="flops", floor=0.001)
    penalty = {"penalty": "l0"} if method == "rvsm" else {}
    training.finish(METHODS[method], **penalty, budget=budget, example_input=training.images)
    assert saved(training.weights) == pytest.approx(sparsity, abs=1e-3)


def test_statistics_say_how_many_multiplications_are_saved() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(64, 5))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(2, 1, 6, 6)
    method = rvsm.Magnitude(model, budget=rvsm.Budget(0.8, 3, by="flops"), example_input=x).attach(optimizer)
    for _ in range(3):
        model(x).square().sum().backward()
        optimizer.step()
    found = method.statistics()
    zeros = {layer.name: layer.zeros for layer in found.layers}
    expected = (16 * zeros["0.weight"] + zeros["2.weight"]) / (16 * 36 + 320)
    assert found.multiplications_saved == pytest.approx(expected)
    assert expected == pytest.approx(0.8, abs=16 / (16 * 36 + 320))
    assert f"{expected:.2%} of their multiplications are saved" in str(found)
    rvsm.release(model)
    plain = rvsm.Magnitude(model, sparsity=0.8, steps=3).attach(optimizer)
    assert plain.statistics().multiplications_saved is None


def test_flops_and_weights_are_different_targets(training: Any) -> None:
    budget = rvsm.Budget(sparsity=0.9, steps=training.steps, by="flops")
    training.finish(rvsm.RVSM, penalty="l0", budget=budget, example_input=training.images)
    assert abs(training.zeros / training.size - saved(training.weights)) > 2e-3


def test_the_largest_feasible_target_by_flops_is_named_and_works(training: Any) -> None:
    options = {"steps": training.steps, "by": "flops", "floor": 0.05}
    method = {"penalty": "l0", "example_input": training.images}
    with pytest.raises(ValueError, match="is not feasible") as error:
        training.finish(rvsm.RVSM, budget=rvsm.Budget(0.99, **options), **method)
    largest = float(re.findall(r"and ([\d.]+);", str(error.value))[0])
    training.finish(rvsm.RVSM, budget=rvsm.Budget(largest, **options), **method)
    kept = {name: int((w != 0).sum()) for name, w in training.weights.items()}
    assert kept == {"0.weight": ceil(0.05 * 432), "3.weight": ceil(0.05 * 4608), "8.weight": ceil(0.05 * 320)}
