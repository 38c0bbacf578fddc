"""A method beside everything else that a training loop may contain."""

import copy
import functools
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import networks
import rvsm

FUSED = [False, True]


network = partial(networks.network, seed=6)


def batch(t: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(t)
    return torch.randn(16, 1, 6, 6, generator=generator), torch.randint(4, (16,), generator=generator)


def loss(model: nn.Module, t: int) -> Tensor:
    x, y = batch(t)
    return nn.functional.cross_entropy(model(x), y)


def sgd(model: nn.Module, **options: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, **options)


def plain(
    make: Callable[[nn.Module], rvsm.RVSM], steps: int = 10, wrap: Callable[[nn.Module], nn.Module] = lambda m: m
) -> nn.Module:
    """Train in the simplest loop there is."""
    model = network()
    optimizer = sgd(model)
    used = wrap(model)
    make(used).attach(optimizer)
    for t in range(steps):
        optimizer.zero_grad()
        loss(used, t).backward()
        optimizer.step()
    return model


def l0(model: nn.Module) -> rvsm.RVSM:
    return rvsm.RVSM(model, rvsm.L0(lam=1e-3), beta=0.3)


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("as_keyword", [False, True])
def test_a_closure_gives_the_same_as_a_plain_loop(as_keyword: bool) -> None:
    model = network()
    optimizer = sgd(model)
    method = l0(model).attach(optimizer)

    def closure(t: int) -> Tensor:
        optimizer.zero_grad()
        value = loss(model, t)
        value.backward()
        return value

    for t in range(10):
        evaluate = functools.partial(closure, t)
        returned = optimizer.step(closure=evaluate) if as_keyword else optimizer.step(evaluate)
        assert isinstance(returned, Tensor)
    assert method.step == 10
    assert equal(model, plain(l0))


def test_an_optimizer_that_evaluates_twice_is_refused() -> None:
    class Twice(torch.optim.SGD):
        def step(self, closure):
            closure()
            return super().step(closure)

    model = network()
    optimizer = Twice(model.parameters(), lr=0.1)
    l0(model).attach(optimizer)
    with pytest.raises(RuntimeError, match="more than once per step"):
        optimizer.step(lambda: loss(model, 0).backward())


def test_gradient_accumulation_pulls_once_per_step() -> None:
    model = network()
    optimizer = sgd(model)
    method = l0(model).attach(optimizer)
    for t in range(3):
        optimizer.zero_grad()
        for micro in range(4):
            (loss(model, 4 * t + micro) / 4).backward()
        before = model[3].weight.detach().clone()
        gradient = model[3].weight.grad.clone()
        momentum = optimizer.state[model[3].weight].get("momentum_buffer", torch.zeros_like(before)).clone()
        optimizer.step()
        pulled = before - 0.05 * 0.3 * (before - rvsm.L0(lam=1e-3).prox(before, 1 / 0.3))
        step = 0.9 * momentum + gradient + 1e-3 * pulled
        torch.testing.assert_close(model[3].weight.detach(), pulled - 0.05 * step)
    assert method.step == 3


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("decoupled", [True, False])
def test_grad_scaler_is_transparent(fused: bool, decoupled: bool) -> None:
    """Scaled gradients give the weights of unscaled ones, and a skipped step changes nothing at all."""
    model, reference = network(), network()
    optimizer, reference_optimizer = sgd(model, fused=fused), sgd(reference, fused=fused)
    options = {"penalty": rvsm.L1(lam=1e-3), "beta": 0.3, "decoupled": decoupled}
    method = rvsm.RVSM(model, **options).attach(optimizer)
    rvsm.RVSM(reference, **options).attach(reference_optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10_000)
    done = 0
    for t in range(8):
        optimizer.zero_grad()
        scaler.scale(loss(model, t)).backward()
        overflow = t in (2, 5)
        if overflow:
            model[0].weight.grad[0, 0, 0, 0] = torch.inf
        before = copy.deepcopy(model.state_dict())
        scaler.step(optimizer)
        scaler.update()
        if overflow:
            assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
        else:
            reference_optimizer.zero_grad()
            loss(reference, t).backward()
            reference_optimizer.step()
            done += 1
        assert method.step == done
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_models(backend: str) -> None:
    compiled = plain(l0, steps=3, wrap=lambda m: torch.compile(m, backend=backend))
    for p, q in zip(compiled.parameters(), plain(l0, steps=3).parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_compiled_models_keep_their_zeros() -> None:
    model = network()
    optimizer = sgd(model)
    compiled = torch.compile(model, backend="aot_eager")
    method = rvsm.RVSM(compiled, "l0", sparsity=0.9, steps=10).attach(optimizer)
    for t in range(10):
        optimizer.zero_grad()
        loss(compiled, t).backward()
        optimizer.step()
    method.finalize()
    assert sum(int((p == 0).sum()) for p in (model[0].weight, model[3].weight)) == round(0.9 * (72 + 512))


def test_a_deep_copy_is_on_its_own() -> None:
    model = network()
    optimizer = sgd(model)
    method = rvsm.RVSM(model, "l0", sparsity=0.9, steps=10).attach(optimizer)
    for t in range(9):
        optimizer.zero_grad()
        loss(model, t).backward()
        optimizer.step()
    twin, frozen = copy.deepcopy(model), copy.deepcopy(model.state_dict())
    optimizer.zero_grad()
    loss(model, 9).backward()
    optimizer.step()
    assert method.phase == "heal"
    assert all(torch.equal(v, frozen[k]) for k, v in twin.state_dict().items())
    loss(twin, 0).backward()
    assert (twin[3].weight.grad[twin[3].weight == 0] != 0).any(), "the copy's gradients are not masked"


def test_an_averaged_copy_goes_beside() -> None:
    model = network()
    optimizer = sgd(model)
    average = torch.optim.swa_utils.AveragedModel(model)
    method = l0(model).attach(optimizer)
    for t in range(5):
        optimizer.zero_grad()
        loss(model, t).backward()
        optimizer.step()
        average.update_parameters(model)
    method.finalize()
    average.module.load_state_dict(model.state_dict())
    support = rvsm.keep_zeros(average.module)
    loss(average.module, 0).backward()
    assert not average.module[3].weight.grad[model[3].weight == 0].any()
    support.remove()


def test_tied_weights_are_pulled_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(6, 6, bias=False)
            self.b = nn.Linear(6, 6, bias=False)
            self.b.weight = self.a.weight

    model = Tied()
    model.a.weight.grad = torch.zeros(6, 6)
    before = model.a.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = rvsm.RVSM(model, rvsm.L0(lam=10.0), beta=0.5).attach(optimizer)
    optimizer.step()
    torch.testing.assert_close(model.a.weight.detach(), before * (1 - 0.05))
    assert method.statistics().parameters == 36


def test_frozen_and_foreign_parameters_stay_as_they_are() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    method = l0(model)
    with pytest.warns(UserWarning, match=r"1 of the selected weights are frozen.*0\.weight"):
        method.attach(optimizer)
    before = model[0].weight.detach().clone()
    loss(model, 0).backward()
    optimizer.step()
    method.finalize()
    assert torch.equal(model[0].weight, before)
    assert (model[3].weight == 0).any()


def test_parameters_without_a_gradient_are_skipped() -> None:
    model = network()
    optimizer = sgd(model)
    l0(model).attach(optimizer)
    before = model[0].weight.detach().clone()
    model[3].weight.grad = torch.zeros_like(model[3].weight)
    last = model[3].weight.detach().clone()
    optimizer.step()
    assert torch.equal(model[0].weight, before)
    assert not torch.equal(model[3].weight, last)


@pytest.mark.parametrize("penalty", rvsm.penalties.PENALTIES)
def test_no_nan_from_a_zero_learning_rate_or_zero_weights(penalty: str) -> None:
    kind = rvsm.penalties.PENALTIES[penalty](lam=1e-3)
    for groups in ("element", "filter"):
        for method in (
            lambda m, g: rvsm.RVSM(m, kind, beta=0.3, overrides={"*": {"groups": g}}),
            lambda m, g: rvsm.ADMM(m, kind, rho=0.3, overrides={"*": {"groups": g}}),
            lambda m, g: rvsm.ProxSGD(m, kind, overrides={"*": {"groups": g}}),
        ):
            model = network()
            model[0].weight.data.zero_()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            last = model[3].weight.detach().clone()
            attached = method(model, groups).attach(optimizer)
            for t in range(2):
                loss(model, t).backward()
                optimizer.step()
            assert torch.equal(model[3].weight, last)
            attached.finalize()
            assert all(p.isfinite().all() for p in model.parameters())


def test_a_warm_up_from_zero_with_a_budget() -> None:
    model = network()
    for p in model.parameters():
        p.data.zero_()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(t / 5, 1.0))
    method = rvsm.RVSM(model, "tl1", sparsity=0.9, steps=20).attach(optimizer)
    for t in range(20):
        optimizer.zero_grad()
        loss(model, t).backward()
        optimizer.step()
        scheduler.step()
    method.finalize()
    assert all(p.isfinite().all() for p in model.parameters())


def test_detaching_ends_the_pull_and_attaching_again_resumes_it() -> None:
    model = network()
    optimizer = sgd(model)
    method = l0(model).attach(optimizer)
    loss(model, 0).backward()
    optimizer.step()
    method.detach()
    optimizer.step()
    assert method.step == 1
    method.attach(sgd(model))
    method.detach()
    assert method.statistics().sparsity > 0
    method.finalize()
    assert (model[3].weight == 0).any()


def test_two_methods_on_different_layers() -> None:
    model = network()
    optimizer = sgd(model)
    first = rvsm.RVSM(model, "l0", sparsity=0.5, steps=20, include=["0.*"]).attach(optimizer)
    last = rvsm.RVSM(model, "l1", sparsity=0.9, steps=20, include=["3.*"]).attach(optimizer)
    for t in range(20):
        optimizer.zero_grad()
        loss(model, t).backward()
        optimizer.step()
    first.finalize()
    last.finalize()
    assert int((model[0].weight == 0).sum()) == 36
    assert int((model[3].weight == 0).sum()) == round(0.9 * 512)


def test_loading_the_optimizers_state_while_attached() -> None:
    """optimizer.load_state_dict replaces the group dicts; the method must see the new learning rates."""
    model = network()
    optimizer = sgd(model)
    method = l0(model).attach(optimizer)
    loss(model, 0).backward()
    optimizer.step()
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        group["lr"] = 0.01
    optimizer.load_state_dict(saved)
    assert method.optimizer_options(method.layers[0])["lr"] == 0.01


def test_what_is_frozen_later_or_never_used_is_left_alone_and_not_counted() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.frozen, self.idle = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.frozen(self.used(x).relu())

    model = Partly()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    method = rvsm.RVSM(model, "l0", sparsity=0.5, steps=20).attach(optimizer)
    idle = model.idle.weight.detach().clone()
    for t in range(20):
        if t == 10:
            model.frozen.weight.requires_grad_(False)
            frozen = model.frozen.weight.detach().clone()
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    with pytest.warns(UserWarning, match=r"2 of the weights are frozen or never had a gradient.*frozen\.weight, idle"):
        method.finalize()
    assert torch.equal(model.idle.weight, idle)
    assert torch.equal(model.frozen.weight, frozen)
    assert int((model.used.weight == 0).sum()) == 32


def test_a_learning_rate_raised_after_the_pull_has_ended() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    method = rvsm.RVSM(model, "l0", sparsity=0.9, steps=20).attach(optimizer)
    for t in range(20):
        optimizer.param_groups[0]["lr"] = 1e-3 if t < 15 else 0.3
        optimizer.zero_grad()
        loss(model, t).backward()
        optimizer.step()
    method.finalize()
    assert sum(int((p == 0).sum()) for p in (model[0].weight, model[3].weight)) == round(0.9 * (72 + 512))
