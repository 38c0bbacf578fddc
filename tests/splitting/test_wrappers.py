"""Optimizers that wrap another, and steps that are made by somebody else."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import networks
import rvsm

STEPS = 20
X = torch.randn(16, 6, generator=torch.Generator().manual_seed(0))


class Accelerated(Optimizer):
    """As in Accelerate: an optimizer by type, which has none of an optimizer's own attributes."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:
        self.optimizer.step(closure)


class SAM(Optimizer):
    """Sharpness-aware minimization, as it is usually written: the gradient is taken beside w."""

    def __init__(self, params: Any, rho: float = 0.05, **options: Any) -> None:
        super().__init__(params, {"rho": rho, **options})
        self.base_optimizer = SGD(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad, alpha=group["rho"])
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base_optimizer.step()
        self.zero_grad()

    def step(self, closure: Any) -> None:
        self.first_step()
        with torch.enable_grad():
            closure()
        self.second_step()


network = partial(networks.perceptron, 6, 8, 6, seed=0)


def loss(model: nn.Module) -> Tensor:
    return (model(X) - X).square().mean()


def sparsifier(model: nn.Module) -> rvsm.RVSM:
    return rvsm.RVSM(model, "l0", sparsity=0.5, steps=STEPS)


def zeros(model: nn.Sequential) -> int:
    return sum(int((w == 0).sum()) for w in (model[0].weight, model[2].weight))


def test_a_wrapper_is_as_good_as_what_it_wraps() -> None:
    weights = []
    for wrap in (lambda optimizer: optimizer, Accelerated, lambda optimizer: Accelerated(Accelerated(optimizer))):
        model = network()
        optimizer = wrap(SGD(model.parameters(), lr=0.1, momentum=0.9))
        method = sparsifier(model).attach(optimizer)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
        method.finalize()
        weights.append(model[0].weight.detach().clone())
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    assert zeros(model) == 48


@pytest.mark.parametrize("calls", [1, 2])
def test_sam_is_followed_where_it_steps(calls: int) -> None:
    model = network()
    optimizer = SAM(model.parameters(), lr=0.1)
    method = sparsifier(model).attach(optimizer)
    for _ in range(STEPS):
        loss(model).backward()
        if calls == 1:
            optimizer.step(lambda: loss(model).backward())
        else:
            optimizer.first_step()
            loss(model).backward()
            optimizer.second_step()
    assert method.step == STEPS
    method.finalize()
    assert zeros(model) == 48


class Inner(SGD):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Outer(Inner):
    fail = False

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        if self.fail:
            raise KeyboardInterrupt
        return loss


@pytest.mark.parametrize("closed", [True, False])
def test_a_subclass_that_calls_the_step_of_its_class_makes_one_step(closed: bool) -> None:
    weights = []
    for kind in (SGD, Inner, Outer):
        model = network()
        optimizer = kind(model.parameters(), lr=0.1, momentum=0.9)
        method = sparsifier(model).attach(optimizer)

        def closure(model: nn.Module = model, optimizer: Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            (value := loss(model)).backward()
            return value

        for _ in range(STEPS):
            if closed:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
        assert method.step == STEPS
        weights.append(model[0].weight.detach().clone())
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_a_step_that_raises_does_not_hide_the_next() -> None:
    model = network()
    optimizer = Outer(model.parameters(), lr=0.1)
    method = sparsifier(model).attach(optimizer)
    for optimizer.fail in (True, False, True, False):
        loss(model).backward()
        if optimizer.fail:
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
        else:
            optimizer.step()
    assert method.step == 2


def test_steps_that_somebody_else_makes_are_noticed_at_once() -> None:
    model = network()
    _method = sparsifier(model).attach(SGD(model.parameters(), lr=0.1))
    other = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        other.zero_grad()
        loss(model).backward()
        other.step()
    with pytest.warns(
        UserWarning, match=r"changed twice although the SGD that was passed to attach\(\) has made no step"
    ):
        loss(model).backward()
    for _ in range(2):  # once is enough
        other.step()
        loss(model).backward()


def test_accumulated_gradients_and_a_change_by_hand_are_nothing_to_speak_of() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    _method = sparsifier(model).attach(optimizer)
    for _ in range(4):
        loss(model).backward()
    model.load_state_dict(network().state_dict())
    with torch.no_grad():
        model[2].weight.mul_(0.5)
    for _ in range(4):
        loss(model).backward()
    for _ in range(3):
        optimizer.step()
        loss(model).backward()


@pytest.mark.parametrize("end", ["finalize", "detach", "forget"])
def test_a_method_that_has_ended_waits_for_no_steps(end: str) -> None:
    model = network()
    method = sparsifier(model).attach(SGD(model.parameters(), lr=0.1))
    if end == "finalize":
        with pytest.warns(UserWarning, match="finalized at step 0"):
            method.finalize()
    elif end == "detach":
        method.detach()
    else:
        del method
    other = SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        loss(model).backward()
        other.step()


def test_an_optimizer_without_hooks_is_refused() -> None:
    class Hollow(Optimizer):
        def __init__(self) -> None:
            self.param_groups = []

    for wrong in (Hollow(), 3):
        with pytest.raises(TypeError, match=rf"expected a torch\.optim\.Optimizer.* but got {type(wrong).__name__}"):
            sparsifier(network()).attach(wrong)
