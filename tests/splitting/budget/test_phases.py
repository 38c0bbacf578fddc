"""Ramp, hold and heal; and trainings that end early, or are short."""

from itertools import product
from typing import Any

import pytest
import torch

import rvsm
from rvsm.penalties import PENALTIES
from rvsm.splitting import Method


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_ramp_is_a_cubic_and_the_prox_alone_follows_it(still: Any, penalty: str, scale: float) -> None:
    ws = {"a": scale * torch.randn(30, 30), "b": 2 * scale * torch.randn(40, 10)}
    budget = rvsm.Budget(sparsity=0.9, steps=20, heal=0.0, every=1)
    found = []

    def after(method: Method) -> None:
        found.append(sum(layer.zeros for layer in method.statistics().layers))

    still(ws, rvsm.RVSM, at=11, after=after, penalty=penalty, beta=0.1, budget=budget)
    cubic = [0.9 * (1 - (1 - step / 10) ** 3) for step in range(11)]
    assert [budget.target(step) for step in range(11)] == pytest.approx(cubic)
    assert found == [round(target * 1300) for target in cubic]


@pytest.mark.parametrize("penalty", ["l0", "l1"])
def test_the_ramp_is_followed_while_the_weights_move(training: Any, penalty: str) -> None:
    budget = rvsm.Budget(sparsity=0.9, steps=40)
    sparsifier = training.attach(rvsm.RVSM, penalty=penalty, budget=budget)
    reached = []
    training.run(20, after=lambda: reached.append(sparsifier.statistics().sparsity))
    assert reached == pytest.approx([budget.target(step) for step in range(20)], abs=0.1)


def test_between_two_looks_the_threshold_stays(training: Any) -> None:
    budget = rvsm.Budget(sparsity=0.9, steps=30, every=4)
    sparsifier = training.attach(rvsm.RVSM, penalty="l0", budget=budget)
    lams: list[float | None] = []
    training.run(16, after=lambda: lams.append(sparsifier.statistics().layers[1].lam))
    assert lams[0] is None
    assert len(set(lams[4:8])) == len(set(lams[8:12])) == len(set(lams[12:15])) == 1
    assert 0 < lams[4] < lams[8] < lams[12] < lams[15]


@pytest.mark.parametrize("gradient", ["w", "moving"])
def test_the_hold_keeps_lambda_with_the_gradient_at_w_else_the_target(training: Any, gradient: str) -> None:
    sparsifier = training.attach(rvsm.RVSM, penalty="l0", sparsity=0.9, steps=40, gradient=gradient)
    seen: list[tuple[str | None, list[float | None]]] = []

    def record() -> None:
        seen.append((sparsifier.phase, [layer.lam for layer in sparsifier.statistics().layers]))

    training.run(40, after=record)
    phases = [phase for phase, _ in seen]
    # The phase after n steps is that of step n, counted from 0.
    assert phases == ["ramp"] * 19 + ["hold"] * 8 + ["heal"] * 13
    assert len({tuple(lams) for _, lams in seen[20:28]}) == (1 if gradient == "w" else 8)
    assert len({tuple(lams) for _, lams in seen[:20]}) > 10
    assert {tuple(lams) for _, lams in seen[28:]} == {(None, None, None)}, "nothing is penalised while it heals"


def test_a_training_that_is_longer_than_the_budget_was_told_is_told_once(training: Any) -> None:
    training.attach(rvsm.RVSM, penalty="l0", sparsity=0.9, steps=20)
    training.run(21)
    with pytest.warns(UserWarning, match=r"has made 22 steps but the budget is for 20, .* phase, 'heal'") as caught:
        training.run(39)
    assert len(caught) == 1
    assert caught[0].filename.endswith("conftest.py"), "it points to the loop"


@pytest.mark.parametrize("penalty", ["l0", "l1", "tl1"])
@pytest.mark.parametrize("gradient", ["w", "moving"])
def test_healing_keeps_the_support_and_has_no_pull(training: Any, penalty: str, gradient: str) -> None:
    optimizer = training.optimizer
    sparsifier = training.attach(rvsm.RVSM, penalty=penalty, sparsity=0.9, steps=training.steps, gradient=gradient)
    training.run(training.steps - round(0.3 * training.steps))
    assert (training.zeros < 100) == (gradient == "w")
    values = []

    # Far past `steps`: it is still the healing.
    with pytest.warns(UserWarning, match="steps but the budget is for"):
        training.run(2 * training.steps, after=lambda: values.append(training.copies))
    assert sparsifier.phase == "heal"
    assert training.zeros == round(0.9 * training.size)
    for value in values:
        assert all(torch.equal(value[name] == 0, values[0][name] == 0) for name in value)
        assert any(not torch.equal(value[name], values[0][name]) for name in value) or value is values[0]
    statistics = sparsifier.statistics()
    assert statistics.gap == 0
    assert statistics.coupling == 0
    before = training.copies
    with sparsifier.sparse_weights():
        assert all(torch.equal(w, before[name]) for name, w in training.weights.items())

    optimizer.state.clear()
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
    for w in training.model.parameters():
        w.grad = torch.zeros_like(w)
    optimizer.step()
    assert all(torch.equal(w, before[name]) for name, w in training.weights.items())

    # In the healing nothing is left to change: no warning about batch norm.
    sparsifier.finalize()
    assert all(torch.equal(w, before[name]) for name, w in training.weights.items())


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("steps", [1, 3, 6])
def test_finalizing_early_meets_the_target_and_warns(training: Any, penalty: str, steps: int) -> None:
    sparsifier = training.attach(rvsm.RVSM, penalty=penalty, sparsity=0.9, steps=training.steps)
    training.run(steps)
    with pytest.warns(UserWarning, match=rf"finalized at step {steps} of {training.steps}, in the phase"):
        sparsifier.finalize(recalibrate=training.images)
    assert training.zeros == round(0.9 * training.size)


@pytest.mark.parametrize(
    ("penalty", "ramp"), [*((penalty, 0.5) for penalty in PENALTIES), *product(["l0", "tl1"], [0.0, 1.0])]
)
def test_without_healing_finalize_gives_the_exact_count(training: Any, penalty: str, ramp: float) -> None:
    budget = rvsm.Budget(sparsity=0.9, steps=training.steps, ramp=ramp, heal=0.0)
    sparsifier = training.finish(rvsm.RVSM, penalty=penalty, budget=budget, pull=6.0)
    assert sparsifier.phase == "hold"
    assert training.zeros == round(0.9 * training.size)


def test_without_a_ramp_the_first_step_has_the_whole_sparsity(still: Any) -> None:
    budget = rvsm.Budget(sparsity=0.9, steps=10, ramp=0.0)
    sparsifier = still({"w": torch.randn(50, 20)}, rvsm.RVSM, at=1, penalty="l0", budget=budget)
    assert sparsifier.phase == "hold"
    assert sparsifier.statistics().layers[0].zeros == 900


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_very_short_trainings_meet_the_target(still: Any, steps: int) -> None:
    ws = {"a": torch.randn(30, 10), "b": torch.randn(20, 10)}
    for heal in (0.0, 0.3, 0.5):
        budget = rvsm.Budget(sparsity=0.9, steps=steps, heal=heal)
        sparsifier = still(ws, rvsm.RVSM, at=steps, penalty="l0", budget=budget)
        sparsifier.finalize()
        assert sum(layer.zeros for layer in sparsifier.statistics().layers) == 450
