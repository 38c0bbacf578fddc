"""The target is met to the weight: over all layers, in each, and with layers that have their own."""

from typing import Any

import pytest
import torch

import rvsm
from rvsm.metrics import zeros
from rvsm.penalties import PENALTIES
from rvsm.splitting import METHODS

SPARSITIES = [0.5, 0.99]  # the second leaves fewer weights than there are outputs


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_global_target_is_met_to_the_weight(training: Any, penalty: str, sparsity: float) -> None:
    training.finish(rvsm.RVSM, penalty=penalty, sparsity=sparsity, steps=training.steps)
    assert training.zeros == round(sparsity * training.size)


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_target_for_each_layer_is_met_to_the_weight(training: Any, penalty: str, sparsity: float) -> None:
    training.finish(rvsm.RVSM, penalty=penalty, budget=rvsm.Budget(sparsity, training.steps, scope="layer"))
    for w in training.weights.values():
        assert zeros(w) == round(sparsity * w.numel())


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("options", [{}, {"scope": "layer"}, {"normalize": True}], ids=str)
def test_magnitude_pruning_meets_the_target_too(training: Any, options: dict, sparsity: float) -> None:
    training.finish(rvsm.Magnitude, budget=rvsm.Budget(sparsity, training.steps, ramp=0.7, **options))
    if "scope" not in options:
        assert training.zeros == round(sparsity * training.size)
    else:
        for w in training.weights.values():
            assert zeros(w) == round(sparsity * w.numel())


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("penalty", ["l0", "l1"])
def test_normalized_layers_meet_the_target(training: Any, penalty: str, sparsity: float) -> None:
    training.finish(rvsm.RVSM, penalty=penalty, budget=rvsm.Budget(sparsity, training.steps, normalize=True))
    assert training.zeros == round(sparsity * training.size)


def test_normalizing_makes_the_scale_of_a_layer_irrelevant(still: Any) -> None:
    ws = {"small": 1e-3 * torch.randn(40, 40), "large": torch.randn(40, 40)}
    by_normalize = {}
    for normalize in (False, True):
        budget = rvsm.Budget(sparsity=0.5, steps=10, normalize=normalize)
        sparsifier = still(ws, rvsm.RVSM, at=6, penalty="l0", budget=budget)
        assert sparsifier.phase == "hold"  # where thresholds make the zeros, not masks
        assert sparsifier.statistics().sparsity == 0.5
        by_normalize[normalize] = [layer.sparsity for layer in sparsifier.statistics().layers]
    assert by_normalize[False] == pytest.approx([0.975, 0.025], abs=1e-9)  # a weight for each output stays
    assert by_normalize[True] == pytest.approx([0.5, 0.5], abs=0.05)


@pytest.mark.parametrize("own", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("pattern", ["0.*", "8.weight"])
@pytest.mark.parametrize("method", ["rvsm", "magnitude"])
def test_a_layer_with_a_sparsity_of_its_own(training: Any, method: str, pattern: str, own: float) -> None:
    penalty = {"penalty": "l1"} if method == "rvsm" else {}
    overrides = {pattern: {"sparsity": own}}
    training.finish(METHODS[method], **penalty, sparsity=0.85, steps=training.steps, overrides=overrides)
    w = training.weights["0.weight" if pattern == "0.*" else pattern]
    assert zeros(w) == round(own * w.numel())
    assert training.zeros == round(0.85 * training.size)


def test_a_layer_with_a_sparsity_of_its_own_among_targets_for_each_layer(training: Any) -> None:
    budget = rvsm.Budget(sparsity=0.5, steps=training.steps, scope="layer")
    training.finish(rvsm.RVSM, penalty="l0", budget=budget, overrides={"3.*": {"sparsity": 0.9}})
    expected = {"0.weight": 0.5, "3.weight": 0.9, "8.weight": 0.5}
    for name, w in training.weights.items():
        assert zeros(w) == round(expected[name] * w.numel())


def test_only_one_layer_becomes_sparse_if_only_it_has_a_target(training: Any) -> None:
    budget = rvsm.Budget(sparsity=0.0, steps=training.steps, scope="layer")
    training.finish(rvsm.RVSM, penalty="l0", budget=budget, overrides={"3.*": {"sparsity": 0.9}})
    assert zeros(training.weights["3.weight"]) == round(0.9 * 4608)
    assert zeros(training.weights["8.weight"]) == 0
