"""ADMM with its zeros fixed for the last steps."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import rvsm

STEPS = 20


def trained(model: nn.Module, method: rvsm.ADMM, steps: int = STEPS) -> list[Tensor]:
    """Return the weight after each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    method.attach(optimizer)
    generator = torch.Generator().manual_seed(0)
    weights = []
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 30, generator=generator)).square().mean().backward()
        optimizer.step()
        weights.append(next(model.parameters()).detach().clone())
    return weights


def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(30, 20, bias=False)


def test_the_zeros_are_fixed_when_it_is_time_and_the_others_train_on() -> None:
    model = layer()
    method = rvsm.ADMM(model, rho=0.5, sparsity=0.8, retrain=0.3, steps=STEPS)
    weights = trained(model, method)
    assert all(int((w == 0).sum()) == 0 for w in weights[:13])
    support = weights[13] != 0  # after 70 % of the steps
    assert int(support.sum()) == 120
    for before, after in pairwise(weights[13:]):
        assert torch.equal(after != 0, support)
        assert not torch.equal(after, before)
    assert method.layers.memory == {}
    method.finalize()
    assert torch.equal(model.weight, weights[-1])


@pytest.mark.parametrize("options", [{}, {"steps": STEPS}])
def test_without_it_nothing_is_fixed(options: dict[str, int]) -> None:
    model = layer()
    weights = trained(model, rvsm.ADMM(model, rho=0.5, sparsity=0.8, **options))
    assert int((weights[-1] == 0).sum()) == 0


def test_until_then_the_steps_are_the_same() -> None:
    one, other = layer(), layer()
    plain = trained(one, rvsm.ADMM(one, rho=0.5, sparsity=0.8), 13)
    fixed = trained(other, rvsm.ADMM(other, rho=0.5, sparsity=0.8, retrain=0.3, steps=STEPS), 13)
    assert torch.equal(plain[-1], fixed[-1])


def test_rho_follows_from_the_learning_rate() -> None:
    one, other = layer(), layer()
    by_pull = rvsm.ADMM(one, sparsity=0.8, pull=4.0, steps=STEPS)
    by_rho = rvsm.ADMM(other, sparsity=0.8, rho=4.0 / STEPS / 0.1)
    assert torch.equal(trained(one, by_pull)[-1], trained(other, by_rho)[-1])
    assert by_pull.layers[0].beta == pytest.approx(2.0)
    assert rvsm.ADMM(one, sparsity=0.8, steps=STEPS).pull == STEPS / 4
    assert rvsm.ADMM(one, sparsity=0.8, steps=10_000).pull == 100.0


def test_a_rising_learning_rate_lowers_rho_and_keeps_the_shift() -> None:
    model = layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    method = rvsm.ADMM(model, sparsity=0.8, steps=STEPS, overrides={"weight": {"sparsity": 0.5}}).attach(optimizer)
    rhos = []
    for lr in (0.0, 0.05, 0.2, 0.1):
        optimizer.param_groups[0]["lr"] = lr
        model.weight.grad = torch.zeros_like(model.weight)
        before = method.point(method.layers[0])
        method.beta_changed(method.layers[0], method.layers[0].change_beta(method.layers[0].beta_at(lr)))
        torch.testing.assert_close(method.point(method.layers[0]), before)
        optimizer.step()
        rhos.append(method.layers[0].beta)
    assert rhos == [None, pytest.approx(5.0), pytest.approx(1.25), pytest.approx(1.25)]
    method.detach()
    method.attach(torch.optim.SGD(model.parameters(), lr=0.4))
    assert method.layers[0].beta is None, "another optimizer has other learning rates"


def test_a_rho_of_its_own_stays() -> None:
    model = nn.Sequential(layer(), nn.Linear(20, 4, bias=False))
    method = rvsm.ADMM(model, sparsity=0.8, steps=STEPS, overrides={"1.*": {"rho": 0.25}})
    trained(model, method, 2)
    assert [each.beta for each in method.layers] == [pytest.approx(2.5), 0.25]
