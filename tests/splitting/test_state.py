"""Save, load into a fresh object, go on: bit-identical to never having stopped."""

import gc
import io
from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import networks
import rvsm
from rvsm.splitting import METHODS, Method

STEPS = 40
MAKERS: dict[str, Callable[[nn.Module], Method]] = {
    "rvsm": lambda m: rvsm.RVSM(m, rvsm.L0(lam=1e-3), beta=0.3),
    "rvsm-printed": lambda m: rvsm.RVSM(m, rvsm.TransformedL1(lam=1e-3), beta=0.3, order="printed"),
    "rvsm-budget": lambda m: rvsm.RVSM(m, "tl1", sparsity=0.9, steps=STEPS),
    "rvsm-paper-budget": lambda m: rvsm.RVSM(m, "tl1", sparsity=0.9, steps=STEPS, gradient="w"),
    "rvsm-straight-through": lambda m: rvsm.RVSM(m, rvsm.L1(lam=1e-3), beta=0.3, gradient="u"),
    "rvsm-printed-budget": lambda m: rvsm.RVSM(m, "l1", sparsity=0.9, steps=STEPS, order="printed"),
    "rvsm-filters": lambda m: rvsm.RVSM(m, "mcp", sparsity=0.5, steps=STEPS, groups="filter", exclude=["4.*"]),
    "admm": lambda m: rvsm.ADMM(m, sparsity=0.7, rho=0.2, interval=3),
    "admm-retrain": lambda m: rvsm.ADMM(m, sparsity=0.7, rho=0.2, retrain=0.5, steps=20),
    "admm-pull": lambda m: rvsm.ADMM(m, sparsity=0.7, pull=4.0, steps=STEPS, interval=3),
    "admm-penalty": lambda m: rvsm.ADMM(m, rvsm.L1(lam=1e-3), rho=0.2),
    "proxsgd": lambda m: rvsm.ProxSGD(m, rvsm.L1(lam=1e-2)),
    "magnitude": lambda m: rvsm.Magnitude(m, sparsity=0.9, steps=STEPS),
    "acdc": lambda m: rvsm.ACDC(m, sparsity=0.9, steps=STEPS, cycles=3),
}
# A step in each phase of a budget (ramp 0–19, hold 20–27, heal 28–39), and the first of each.
STOPS = [1, 7, 20, 24, 28, 33]
STOPS_WITHOUT_PHASES = [1, 24]


network = partial(networks.network, norm=True, seed=3)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)


@cache
def batch(t: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(t)
    return torch.randn(16, 1, 6, 6, generator=generator), torch.randint(4, (16,), generator=generator)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, t: int) -> None:
    x, y = batch(t)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def through_a_file(state: Any) -> Any:
    """Return what a safe load, which unpickles nothing but tensors and plain values, gives back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def plain(state: Any) -> Any:
    """Return a state with lists for its tensors, so that == compares every value."""
    return tree_map(lambda value: value.tolist() if isinstance(value, Tensor) else value, state)


def test_every_method_is_here() -> None:
    assert {maker(network()).name for maker in MAKERS.values()} == set(METHODS)


@pytest.mark.parametrize("kind", MAKERS)
def test_resuming_is_bit_identical(kind: str) -> None:
    """From each stop to the next, since what a state lacks is missing from the first step that uses it."""
    model = network()
    optimizer = optimizer_of(model)
    method = MAKERS[kind](model).attach(optimizer)
    stops = STOPS if method.budget or kind.startswith("admm") else STOPS_WITHOUT_PHASES
    saved = {}
    for t in range(STEPS):
        if t in stops:
            saved[t] = through_a_file([model.state_dict(), optimizer.state_dict(), method.state_dict()])
        step(model, optimizer, t)
    method.finalize(recalibrate=torch.ones(2, 1, 6, 6))
    saved[STEPS] = [model.state_dict(), optimizer.state_dict(), method.state_dict()]
    for (stop, following), attach_first in product(pairwise(saved), (True, False)):
        weights, moments, state = deepcopy(saved[stop])  # an optimizer keeps the tensors that it gets
        fresh = network()
        for p in fresh.parameters():
            p.data.normal_()
        fresh_optimizer = optimizer_of(fresh)
        fresh.load_state_dict(weights)
        fresh_optimizer.load_state_dict(moments)
        resumed = MAKERS[kind](fresh)
        if attach_first:
            resumed.attach(fresh_optimizer).load_state_dict(state)
        else:
            resumed.load_state_dict(state)
            resumed.attach(fresh_optimizer)
        for t in range(stop, following):
            step(fresh, fresh_optimizer, t)
        if following == STEPS:
            resumed.finalize(recalibrate=torch.ones(2, 1, 6, 6))
        reached = [fresh.state_dict(), fresh_optimizer.state_dict(), resumed.state_dict()]
        assert plain(reached) == plain(saved[following]), f"from step {stop} to {following}"


def test_a_finalized_state_keeps_its_zeros_when_loaded() -> None:
    model = network()
    optimizer = optimizer_of(model)
    method = MAKERS["rvsm-budget"](model).attach(optimizer)
    for t in range(STEPS):
        step(model, optimizer, t)
    method.finalize()
    fresh = network()
    fresh.load_state_dict(model.state_dict())
    fresh_optimizer = optimizer_of(fresh)
    loaded = MAKERS["rvsm-budget"](fresh)
    loaded.load_state_dict(through_a_file(method.state_dict()))
    loaded.attach(fresh_optimizer)
    zeros = {name: p == 0 for name, p in fresh.named_parameters() if p.dim() > 1}
    for t in range(10):
        step(fresh, fresh_optimizer, t)
    assert all(torch.equal(zeros[name], p == 0) for name, p in fresh.named_parameters() if p.dim() > 1)
    assert sum(int(z.sum()) for z in zeros.values()) == round(0.9 * (72 + 512))


@pytest.fixture
def frozen() -> None:
    """Hide the objects of all tests before from the garbage collector."""
    gc.collect()
    gc.freeze()


def bytes_of_tensors() -> int:
    """Return the bytes of all tensors that the garbage collector sees."""
    gc.collect()
    storages = {}
    for o in gc.get_objects():
        # Not isinstance, which would wake lazy objects of torch; sparse tensors, of other tests, have no storage.
        if type(o) in (Tensor, nn.Parameter) and o.layout == torch.strided:
            storages[o.untyped_storage().data_ptr()] = o.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.mark.usefixtures("frozen")
def test_with_the_gradient_at_w_the_proofs_order_keeps_no_tensor() -> None:
    """Between steps there are as many bytes of tensors as plain SGD has."""
    model = nn.Linear(200, 300, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(1, 200)
    model(x).sum().backward()
    optimizer.step()
    before = bytes_of_tensors()
    methods = []
    for kind in (
        {"beta": 0.1, "penalty": rvsm.L0(lam=1e-3)},
        {"penalty": "tl1", "sparsity": 0.5, "steps": 100, "gradient": "w"},
    ):
        method = rvsm.RVSM(model, **kind).attach(optimizer)
        for _ in range(20):
            optimizer.step()
        assert method.step == 20
        assert bytes_of_tensors() == before
        method.detach()
        methods.append(method)
    printed = rvsm.RVSM(model, rvsm.L0(lam=1e-3), beta=0.1, order="printed").attach(optimizer)
    optimizer.step()
    assert bytes_of_tensors() == before + 200 * 300 * 4  # the count sees what is there to be seen
    assert printed.layers.memory["u"]["weight"].numel() == 200 * 300


@pytest.mark.usefixtures("frozen")
def test_a_moving_gradient_keeps_one_copy_of_the_weights_until_they_heal() -> None:
    model = nn.Linear(200, 300)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 200)).sum().backward()
    optimizer.step()
    before = bytes_of_tensors()
    method = rvsm.RVSM(model, "l0", sparsity=0.5, steps=40).attach(optimizer)
    for t in range(40):
        optimizer.step()
        healing = method.phase == "heal" and t >= 28
        copies = 0 if t == 0 else 1 if healing else 4  # the target begins at no zeros; masks have a byte for a weight
        assert bytes_of_tensors() - before == copies * 200 * 300, t


def test_numbers_of_numpy_are_plain_in_a_state() -> None:
    def made(number: Any) -> list[Method]:
        share = number(0.5)
        return [
            rvsm.RVSM(network(), rvsm.L0(number(0.25)), beta=number(0.125)),
            rvsm.RVSM(
                network(), "scad", budget=rvsm.Budget(share, 20, ramp=share, heal=number(0.25), floor=number(0.125)),
                pull=number(2.0), overrides={"0.*": {"sparsity": share}},
            ),
            rvsm.ADMM(network(), sparsity=share, rho=number(0.25)),
        ]  # fmt: skip

    for theirs, ours in zip(made(np.float32), made(float), strict=True):
        ours.load_state_dict(through_a_file(theirs.state_dict()))
        theirs.load_state_dict(through_a_file(ours.state_dict()))


@pytest.mark.parametrize("kind", ["admm", "rvsm-printed"])
def test_a_state_that_is_loaded_before_the_model_changes_its_type(kind: str) -> None:
    saved, model = network(), network()
    optimizer = optimizer_of(saved)
    method = MAKERS[kind](saved).attach(optimizer)
    step(saved, optimizer, 0)
    again = MAKERS[kind](model)
    again.load_state_dict(method.state_dict())
    model.double()
    other = optimizer_of(model)
    again.attach(other)
    model(torch.randn(4, 1, 6, 6, dtype=torch.float64)).sum().backward()
    other.step()
    assert {v.dtype for kept in again.layers.memory.values() for v in kept.values()} == {torch.float64}


def test_a_state_of_any_phase_may_follow_one_of_another() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(20, 10), torch.randn(8, 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = rvsm.RVSM(model, "l0", sparsity=0.8, steps=20).attach(optimizer)
    saved = [method.state_dict()]
    for _ in range(20):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        saved.append(method.state_dict())
    for step in (5, 20, 12, 1, 0, 17):  # λ is unknown at first, and of no use once the zeros are fixed
        method.load_state_dict(saved[step])
        assert method.step == step
