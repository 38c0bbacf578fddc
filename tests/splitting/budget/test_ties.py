"""Equal weights, and weights that are zero already."""

from typing import Any

import pytest
import torch
from torch import nn

import rvsm
from rvsm.penalties import PENALTIES


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("options", [{}, {"scope": "layer"}, {"normalize": True}], ids=str)
def test_equal_weights_are_told_apart_by_their_place_alone(still: Any, penalty: str, options: dict) -> None:
    ws = {"a": torch.full((20, 20), 0.1), "b": torch.full((10, 60), -0.1)}
    for heal in (0.0, 0.3):
        budget = rvsm.Budget(sparsity=0.7, steps=10, heal=heal, **options)
        sparsifier = still(ws, rvsm.RVSM, at=10, penalty=penalty, budget=budget)
        sparsifier.finalize()
        assert sum(layer.zeros for layer in sparsifier.statistics().layers) == 700


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("heal", [0.0, 0.3])
def test_more_zeros_than_the_target_stay(still: Any, penalty: str, heal: float) -> None:
    ws = {"a": torch.randn(20, 20), "b": torch.randn(10, 60)}
    for w in ws.values():
        w.flatten()[torch.randperm(w.numel())[: int(0.8 * w.numel())]] = 0
    budget = rvsm.Budget(sparsity=0.5, steps=10, heal=heal)
    sparsifier = still(ws, rvsm.RVSM, at=10, penalty=penalty, budget=budget)
    assert sparsifier.statistics().sparsity == 0.8
    sparsifier.finalize()
    assert sparsifier.statistics().sparsity == 0.8


def test_all_zeros_written_by_finalize_stay_zero_even_beyond_the_target() -> None:
    w = nn.Parameter(torch.cat([torch.zeros(80), torch.randn(20)]).view(10, 10))
    optimizer = torch.optim.SGD([w], lr=0.1)
    sparsifier = rvsm.RVSM([("w", w)], "l0", beta=1.0, sparsity=0.5, steps=1).attach(optimizer)
    w.grad = torch.zeros_like(w)
    optimizer.step()
    sparsifier.finalize()
    (w + 1).square().sum().backward()
    optimizer.step()
    assert int((w == 0).sum()) == 80


@pytest.mark.parametrize("penalty", PENALTIES)
def test_mostly_zero_weights_reach_a_target_beyond_their_zeros(still: Any, penalty: str) -> None:
    ws = {"a": torch.randn(20, 20), "b": torch.zeros(10, 60)}
    ws["b"][0, :5] = 1e-30  # far below the square root of the smallest number
    budget = rvsm.Budget(sparsity=0.9, steps=10, floor=0.0)
    sparsifier = still(ws, rvsm.RVSM, at=10, penalty=penalty, budget=budget)
    sparsifier.finalize()
    assert sum(layer.zeros for layer in sparsifier.statistics().layers) == 900
