"""Each layer keeps its share, and a target that does not let it is refused with the largest that would."""

import re
from math import ceil
from typing import Any

import pytest
import torch

import rvsm
from rvsm.splitting import METHODS
from rvsm.splitting.layers import Layer


@pytest.mark.parametrize("floor", [0.0, 0.005, 0.1, 0.25])
@pytest.mark.parametrize("method", ["rvsm", "magnitude"])
def test_no_layer_loses_more_than_the_floor_allows(still: Any, method: str, floor: float) -> None:
    # By magnitude alone the first layer would go first, as a whole.
    ws = {"small": 1e-6 * torch.randn(20, 20), "large": torch.randn(30, 20)}
    penalty = {"penalty": "l0"} if method == "rvsm" else {}
    budget = rvsm.Budget(sparsity=0.7, steps=10, floor=floor)
    sparsifier = still(ws, METHODS[method], at=10, **penalty, budget=budget)
    sparsifier.finalize()
    small, large = sparsifier.statistics().layers
    assert small.weights - small.zeros == max(1, ceil(floor * 400))
    assert small.zeros + large.zeros == 700


@pytest.mark.parametrize("floor", [0.0, 0.01, 0.1, 1 / 3])
@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("groups", ["element", "filter", "block"])
def test_the_largest_feasible_target_is_named_and_works(still: Any, groups: str, scope: str, floor: float) -> None:
    ws = {"a": torch.randn(30, 7), "b": torch.randn(10, 40)}
    options = {"steps": 10, "scope": scope, "floor": floor}
    with pytest.raises(ValueError, match="is not feasible") as error:
        still(ws, rvsm.RVSM, penalty="l0", budget=rvsm.Budget(sparsity=0.9999, **options), groups=groups)
    largest = float(re.findall(r"(?:and|largest is) ([\d.]+);", str(error.value))[0])
    sparsifier = still(
        ws, rvsm.RVSM, at=10, penalty="l0", budget=rvsm.Budget(sparsity=largest, **options), groups=groups
    )
    sparsifier.finalize()
    sizes = {"element": (1, 1), "filter": (7, 40), "block": (4, 4)}[groups]
    if scope == "global":
        achieved, group = sparsifier.statistics().sparsity, max(sizes) / 610
    else:
        achieved, group = (
            min(row.sparsity for row in sparsifier.statistics().layers),
            max(sizes[0] / 210, sizes[1] / 400),
        )
    assert achieved == pytest.approx(largest, abs=group / 2 + 1e-5)
    for layer in sparsifier.layers:
        alive = layer.magnitudes(layer.w.detach()) != 0
        assert int(alive.sum()) >= max(1, ceil(floor * alive.numel()))


@pytest.mark.parametrize("sparsity", [0.1, 0.95])
def test_overrides_bound_the_target_from_both_sides(still: Any, sparsity: float) -> None:
    ws = {"a": torch.randn(10, 10), "b": torch.randn(10, 30)}
    options = {"penalty": "l0", "overrides": {"a": {"sparsity": 0.8}}}
    with pytest.raises(ValueError, match=r"it must be between 0\.2 and 0\.9425;"):
        still(ws, rvsm.RVSM, budget=rvsm.Budget(sparsity, 10, floor=0.01), **options)


def test_an_infeasible_override_names_its_layer(still: Any) -> None:
    ws = {"a": torch.randn(10, 10), "b": torch.randn(10, 30)}
    with pytest.raises(ValueError, match=r"sparsity 0\.999 of 'a' is not feasible: .* the largest is 0\.99;"):
        still(ws, rvsm.RVSM, penalty="l0", budget=rvsm.Budget(0.5, 10), overrides={"a": {"sparsity": 0.999}})


def test_the_floor_is_not_raised_by_rounding() -> None:
    layers = [Layer("a", torch.arange(100.0)), Layer("b", torch.arange(1e4, 2e4))]
    assert int(rvsm.Budget(0.99, 10, floor=0.07, ramp=0).zeros(layers, 0.9)["a"].sum()) == 93


@pytest.mark.parametrize("sparsity", [0.5, 0.9, 0.99, 0.995, 0.999])
@pytest.mark.parametrize("by", ["weights", "flops"])
def test_by_default_a_layer_keeps_a_weight_for_each_output_while_there_is_room(sparsity: float, by: str) -> None:
    # By magnitude alone the first two layers would go first, as a whole.
    shapes = {"first": (16, 27), "middle": (64, 16, 3, 3), "last": (10, 640)}
    layers = [Layer(name, 10.0**i * torch.randn(shape)) for i, (name, shape) in enumerate(shapes.items())]
    for layer, uses in zip(layers, (1024, 64, 1), strict=True):
        layer.multiplications = uses if by == "flops" else 1
    budget = rvsm.Budget(sparsity, 10, by=by)
    zeros = budget.zeros(layers, sparsity)
    costs = {layer.name: layer.multiplications for layer in layers}
    total = sum(costs[name] * mask.numel() for name, mask in zeros.items())
    assert sum(costs[name] * int(mask.sum()) for name, mask in zeros.items()) == pytest.approx(
        sparsity * total, abs=max(costs.values())
    )
    room = (1 - sparsity) * total / 2
    outputs = sum(costs[name] * shape[0] for name, shape in shapes.items())
    for name, mask in zeros.items():
        kept = mask.numel() - int(mask.sum())
        assert kept >= max(1, int(min(1.0, room / outputs) * 0.8 * shapes[name][0])), name
