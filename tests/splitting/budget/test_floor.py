"""Each layer keeps its share, and a target that does not let it is refused with the largest that would."""

import re
from math import ceil
from typing import Any

import pytest
import torch

import rvsm
from rvsm.splitting import METHODS


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
    largest = float(re.findall(r"(?:to|largest is) ([\d.]+);", str(error.value))[0])
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
    for layer in sparsifier.held:
        alive = layer.magnitudes(layer.w.detach()) != 0
        assert int(alive.sum()) >= max(1, ceil(floor * alive.numel()))


@pytest.mark.parametrize("sparsity", [0.1, 0.95])
def test_overrides_bound_the_target_from_both_sides(still: Any, sparsity: float) -> None:
    ws = {"a": torch.randn(10, 10), "b": torch.randn(10, 30)}
    options = {"penalty": "l0", "overrides": {"a": {"sparsity": 0.8}}}
    with pytest.raises(ValueError, match=r"it can be from 0\.2 to 0\.9425;"):
        still(ws, rvsm.RVSM, budget=rvsm.Budget(sparsity, 10, floor=0.01), **options)


def test_an_infeasible_override_names_its_layer(still: Any) -> None:
    ws = {"a": torch.randn(10, 10), "b": torch.randn(10, 30)}
    with pytest.raises(ValueError, match=r"sparsity 0\.999 of 'a' is not feasible: .* the largest is 0\.99;"):
        still(ws, rvsm.RVSM, penalty="l0", budget=rvsm.Budget(0.5, 10), overrides={"a": {"sparsity": 0.999}})
