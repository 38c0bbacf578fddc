"""Where the gradient is taken: at w, at u, or moving from one to the other."""

import copy
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import networks
import rvsm
from rvsm.groups import GROUPS
from rvsm.penalties import PENALTIES, Grouped, Penalty
from rvsm.splitting.layers import Layer

LR, STEPS = 0.05, 40
RAMP, HEAL = 20, 28
"""The steps at which the ramp ends and the healing begins."""
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "nesterov": lambda m: torch.optim.SGD(m.parameters(), lr=LR, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "nesterov-fused": lambda m: torch.optim.SGD(m.parameters(), lr=LR, momentum=0.9, nesterov=True, fused=True),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=LR / 10, weight_decay=1e-1),
    "adamw-foreach": lambda m: torch.optim.AdamW(m.parameters(), lr=LR / 10, foreach=True),
}


network = partial(networks.network, 2, 6, 5, seed=1, dtype=torch.float64)


def loss(model: nn.Module, t: int) -> Tensor:
    generator = torch.Generator().manual_seed(t)
    x = torch.randn(8, 2, 6, 6, generator=generator, dtype=torch.float64)
    return nn.functional.cross_entropy(model(x), torch.randint(5, (8,), generator=generator))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, t: int) -> None:
    optimizer.zero_grad()
    loss(model, t).backward()
    optimizer.step()


def temper(parameter: Tensor, u: Tensor, threshold: float, group: dict, alpha: float) -> None:
    """Limit the gradient of what u leaves out to the threshold, and multiply that of emptied outputs by α."""
    limit = threshold * (1 - group.get("momentum", 0.0)) / group["lr"]
    parameter.grad[u == 0] = parameter.grad[u == 0].clamp(-limit, limit)
    parameter.grad[(u.flatten(1) == 0).all(1)] *= alpha


def weights(model: nn.Sequential) -> list[Tensor]:
    return [model[0].weight, model[3].weight]


def attached(optimizer: str = "nesterov", **options: object) -> tuple[nn.Sequential, torch.optim.Optimizer, rvsm.RVSM]:
    model = network()
    opt = OPTIMIZERS[optimizer](model)
    defaults = {"penalty": "l0", "sparsity": 0.7, "steps": STEPS}
    return model, opt, rvsm.RVSM(model, **(defaults | options)).attach(opt)


def kept(method: rvsm.RVSM) -> list[Tensor]:
    """Return w."""
    return [layer.w.detach().clone() for layer in method.layers]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("penalty", [rvsm.L0(2e-3), rvsm.L1(2e-3), rvsm.TransformedL1(2e-3), rvsm.MCP(0.05, gamma=3.0)])
@pytest.mark.parametrize("gradient", ["w", "u"])
@pytest.mark.parametrize("groups", ["element", "filter"])
def test_the_formula_with_a_given_penalty(optimizer: str, penalty: Penalty, gradient: str, groups: str) -> None:
    model = network()
    opt, beta, alpha = OPTIMIZERS[optimizer](model), 0.5, float(gradient == "w")
    prox = Grouped(penalty, GROUPS[groups]()).prox
    ws = [w.detach().clone() for w in weights(model)]
    for t in range(12):
        us = [prox(w, 1 / beta) for w in ws]
        for parameter, w, u in zip(weights(model), ws, us, strict=True):
            parameter.data = w if t == 0 else u + alpha * (w - u)  # attaching changes no weight
        model.zero_grad()
        loss(model, t).backward()
        for parameter, w, u in zip(weights(model), ws, us, strict=True):
            if alpha < 1:
                temper(parameter, u, penalty.threshold(1 / beta), opt.param_groups[0], alpha)
            parameter.data = w - opt.param_groups[0]["lr"] * beta * (w - u)
        opt.step()
        ws = [w.detach().clone() for w in weights(model)]

    model, opt, method = attached(
        optimizer,
        penalty=penalty,
        beta=beta,
        gradient=gradient,
        overrides={"*": {"groups": groups}},  # the layers at the ends, too
        sparsity=None,
        steps=None,
    )
    for t in range(12):
        step(model, opt, t)
    for ours, w in zip(kept(method), ws, strict=True):
        torch.testing.assert_close(ours, w, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("penalty", ["l0", "l1"])
def test_the_formula_with_a_target(penalty: str) -> None:
    """One threshold for all layers, set anew before each step; α is the missing part of the target; then zeros stay."""
    model = network()
    opt, rate = OPTIMIZERS["nesterov"](model), 10 / STEPS  # the default pull, a quarter of the steps
    ws, size = [w.detach().clone() for w in weights(model)], sum(w.numel() for w in weights(model))
    us, budget = ws, rvsm.Budget(0.7, STEPS, floor=0)
    thresholds = [math.inf, math.inf]
    for t in range(HEAL):
        alpha = max(1 - t / RAMP, 0.0) ** 3
        for parameter, w, u in zip(weights(model), ws, us, strict=True):
            parameter.data = u + alpha * (w - u)
        model.zero_grad()
        loss(model, t).backward()
        for parameter, u, threshold in zip(weights(model), us, thresholds, strict=True):
            temper(parameter, u, threshold, opt.param_groups[0], alpha)
        layers = [Layer(str(i), w) for i, w in enumerate(ws)]
        thresholds = [s or 1e-30 for s in budget.cutoffs(layers, 0.7 * (1 - alpha))]
        # Through λ, as the method does it: a weight at the threshold may lie on either side after rounding.
        proxes = [
            partial(PENALTIES[penalty](1.0).with_threshold(s, LR / rate).prox, step=LR / rate) for s in thresholds
        ]
        for parameter, w, prox in zip(weights(model), ws, proxes, strict=True):
            parameter.data = w + rate * (prox(w) - w)
        opt.step()
        ws = [w.detach().clone() for w in weights(model)]
        us = [prox(w) for w, prox in zip(ws, proxes, strict=True)]

    model, opt, method = attached(penalty=penalty, budget=budget, sparsity=None, steps=None)
    for t in range(HEAL):
        step(model, opt, t)
    for ours, w in zip(kept(method), ws, strict=True):
        torch.testing.assert_close(ours, w, rtol=1e-9, atol=1e-12)
    step(model, opt, HEAL)
    assert sum(int((w == 0).sum()) for w in weights(model)) == round(0.7 * size)


def test_an_emptied_channel_before_a_batch_norm_does_not_take_the_places_of_other_layers() -> None:
    """The norm divides by √ε there, and the gradient of what u leaves out is many times what it should be."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    with torch.no_grad():
        model[0].weight[0] *= 1e-3  # below the threshold: a channel of u without a weight
        model[1].bias.fill_(0.5)  # that a ReLU lets through
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    method = rvsm.RVSM(model, rvsm.L0(lam=1e-3), beta=0.5, gradient="u").attach(opt)
    x, y = torch.randn(64, 3, 6, 6), torch.randint(5, (64,))
    nn.functional.cross_entropy(model(x), y).backward()
    raw = model[0].weight.grad.abs().amax(dim=(1, 2, 3))
    assert raw[0] > 20 * raw[1:].max()
    opt.step()
    assert (model[0].weight.grad[0] == 0).all()  # α times what it was
    assert 0.1 * model[0].weight.grad.abs().max() <= 1.0001 * method.statistics().layers[0].threshold


def test_the_gradient_of_an_emptied_output_fades_with_alpha() -> None:
    model, opt, method = attached("nesterov")
    for t in range(RAMP // 2):
        step(model, opt, t)
    assert method.alpha == pytest.approx(1 / 8)
    with torch.no_grad():
        method.layers[0].w[2] *= 1e-6  # an output that u leaves out, before the layer is thresholded again
    model[0].weight.data.copy_(method.layers[0].w)
    opt.zero_grad()
    loss(model, RAMP // 2).backward()
    raw = model[0].weight.grad.clone()
    limit = method.layers[0].threshold * (1 - 0.9) / LR
    opt.step()
    torch.testing.assert_close(model[0].weight.grad[2], raw[2].clamp(-limit, limit) / 8, rtol=1e-9, atol=0)


def test_the_default_is_the_papers_method_unless_there_is_a_target() -> None:
    assert rvsm.RVSM(network(), rvsm.L0(1e-3), beta=1.0).gradient == "w"
    assert rvsm.RVSM(network(), "l0", sparsity=0.5, steps=10).gradient == "moving"
    assert rvsm.RVSM(network(), "l0", sparsity=0.5, steps=10, order="printed").gradient == "w"


@pytest.mark.parametrize("gradient", ["w", "u", "moving"])
def test_alpha_falls_from_one_to_zero_along_the_ramp(gradient: str) -> None:
    model, opt, method = attached(gradient=gradient)
    seen = []
    for t in range(HEAL):
        seen.append(method.alpha)
        step(model, opt, t)
    expected = {"w": [1.0] * HEAL, "u": [0.0] * HEAL, "moving": [max(1 - t / RAMP, 0.0) ** 3 for t in range(HEAL)]}
    assert seen == pytest.approx(expected[gradient])


@pytest.mark.parametrize("penalty", ["l0", "l1"])
def test_between_steps_the_model_holds_v_and_detaching_gives_w_back(penalty: str) -> None:
    model, opt, method = attached(penalty=penalty)
    for t in range(10):
        step(model, opt, t)
    ws = kept(method)
    with method.sparse_weights():
        us = [w.detach().clone() for w in weights(model)]
    assert method.alpha == pytest.approx(1 / 8)
    for w, u, v in zip(ws, us, weights(model), strict=True):
        torch.testing.assert_close(v.detach(), u + (w - u) / 8)
        assert not torch.equal(v, w)
    other = copy.deepcopy(model)
    assert all(torch.equal(a, b) for a, b in zip(weights(other), weights(model), strict=True))
    method.detach()
    assert all(torch.equal(a, b) for a, b in zip(weights(model), ws, strict=True))
    method.attach(opt)
    assert all(torch.equal(a, b) for a, b in zip(weights(model), ws, strict=True))


def test_masked_is_w_on_the_support_of_u() -> None:
    model, opt, method = attached(penalty="l1", gradient="u")
    for t in range(24):
        step(model, opt, t)
    ws = kept(method)
    with method.sparse_weights(output="masked"):
        for w, masked in zip(ws, weights(model), strict=True):
            assert torch.equal(masked, torch.where(masked != 0, w, 0.0))
            assert 0 < int((masked == 0).sum()) < w.numel()


def test_looking_at_the_sparse_network_changes_nothing() -> None:
    model, opt, method = attached()
    other, other_opt, _ = attached()
    for t in range(STEPS):
        step(model, opt, t)
        with method.sparse_weights():
            loss(model, t)
        method.statistics()
        step(other, other_opt, t)
    assert all(torch.equal(a, b) for a, b in zip(weights(model), weights(other), strict=True))


def test_what_others_write_into_the_model_is_w_from_then_on() -> None:
    model, opt, method = attached(gradient="u", penalty=rvsm.L0(2e-3), beta=0.5, sparsity=None, steps=None)
    pretrained = {name: torch.randn_like(p) for name, p in model.state_dict().items()}
    step(model, opt, 0)
    model.load_state_dict(pretrained)
    method.statistics()
    assert all(torch.equal(w, pretrained[layer.name]) for w, layer in zip(kept(method), method.layers, strict=True))
    fresh, fresh_opt = network(), opt
    fresh.load_state_dict(pretrained)
    fresh_opt = OPTIMIZERS["nesterov"](fresh)
    fresh_opt.load_state_dict(copy.deepcopy(opt.state_dict()))
    # The next gradient is taken at what was loaded, as it would be without a method.
    reference = rvsm.RVSM(fresh, rvsm.L0(2e-3), beta=0.5, gradient="w").attach(fresh_opt)
    step(fresh, fresh_opt, 1)
    step(model, opt, 1)
    for ours, theirs, layer in zip(kept(method), kept(reference), method.layers, strict=True):
        used = pretrained[layer.name].abs() > layer.penalty.threshold(2.0)  # the gradients of the others are limited
        torch.testing.assert_close(ours[used], theirs[used], rtol=1e-12, atol=0)


def test_a_clamp_between_steps_changes_what_it_clamps_and_nothing_else() -> None:
    model, opt, method = attached(gradient="u", penalty=rvsm.L0(2e-3), beta=0.5, sparsity=None, steps=None)
    step(model, opt, 0)
    before = kept(method)
    for w in weights(model):
        w.data.clamp_(-0.095, 0.095)
    method.statistics()
    for now, w in zip(kept(method), before, strict=True):
        above = (w.abs() > 0.095) & (w.abs() > method.layers[0].penalty.threshold(2.0))
        assert above.any()
        assert torch.equal(now, torch.where(above, 0.095 * w.sign(), w))


def test_a_checkpoint_from_a_machine_that_rounds_otherwise_is_recognised() -> None:
    model, opt, method = attached()
    for t in range(10):
        step(model, opt, t)
    before = kept(method)
    for w in weights(model):
        w.data *= 1 + 1e-7
    method.statistics()
    assert all(torch.equal(a, b) for a, b in zip(kept(method), before, strict=True))


def test_the_order_in_which_model_and_method_are_loaded_does_not_matter() -> None:
    model, opt, method = attached()
    for t in range(15):
        step(model, opt, t)
    saved = copy.deepcopy([model.state_dict(), opt.state_dict(), method.state_dict()])
    ends = []
    for model_first in (True, False):
        fresh, fresh_opt, resumed = attached()
        for p in fresh.parameters():
            p.data.normal_()
        if model_first:
            fresh.load_state_dict(saved[0])
        resumed.load_state_dict(saved[2])
        fresh.load_state_dict(saved[0])
        fresh_opt.load_state_dict(copy.deepcopy(saved[1]))
        for t in range(15, STEPS):
            step(fresh, fresh_opt, t)
        ends.append([w.detach().clone() for w in weights(fresh)])
    for t in range(15, STEPS):
        step(model, opt, t)
    for a, b, c in zip(*ends, weights(model), strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, c)


def test_accumulated_gradients_and_closures_give_the_plain_steps() -> None:
    model, opt, method = attached()
    closed, closed_opt, with_closure = attached()
    parts, parts_opt, accumulated = attached()
    for t in range(24):
        step(model, opt, t)

        def closure(t: int = t) -> Tensor:
            closed_opt.zero_grad()
            value = loss(closed, t)
            value.backward()
            return value

        closed_opt.step(closure)
        parts_opt.zero_grad()
        for _ in range(2):
            (loss(parts, t) / 2).backward()
        parts_opt.step()
    for plain, other, third in zip(kept(method), kept(with_closure), kept(accumulated), strict=True):
        assert torch.equal(plain, other)
        torch.testing.assert_close(plain, third, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_scaler_skips_leaves_w_and_v(fused: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(20, 10)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10_000)
    method = rvsm.RVSM(model, "l0", sparsity=0.5, steps=40).attach(opt)

    def scaled(factor: float) -> None:
        opt.zero_grad()
        scaler.scale(model(torch.ones(2, 20)).square().mean() * factor).backward()
        scaler.step(opt)
        scaler.update()

    for _ in range(10):
        scaled(1.0)
    w, v = method.layers[0].w.clone(), model.weight.detach().clone()
    assert not torch.equal(w, v)
    scaled(math.inf)
    assert method.step == 10
    assert torch.equal(method.layers[0].w, w)
    assert torch.equal(model.weight, v)
    scaled(1.0)
    assert method.step == 11


def test_another_memory_format_in_the_middle_of_the_ramp_changes_no_weight() -> None:
    model, opt, method = attached()
    for t in range(10):
        step(model, opt, t)
    ws = kept(method)
    model.to(memory_format=torch.channels_last)
    method.statistics()
    assert all(torch.equal(a, b) for a, b in zip(kept(method), ws, strict=True))
    method.detach()
    assert all(torch.equal(a, b) for a, b in zip(weights(model), ws, strict=True))


def test_detaching_inside_sparse_weights_is_refused() -> None:
    model, opt, method = attached()
    for t in range(10):
        step(model, opt, t)
    ws = kept(method)
    with pytest.raises(RuntimeError, match="detach after it"), method.sparse_weights():
        method.detach()
    method.detach()
    assert all(torch.equal(a, b) for a, b in zip(weights(model), ws, strict=True))


def test_an_average_of_the_model_averages_v() -> None:
    model, opt, method = attached()
    average = AveragedModel(model)
    seen = []
    for t in range(STEPS):
        step(model, opt, t)
        average.update_parameters(model)
        seen.append(model[3].weight.detach().clone())
    torch.testing.assert_close(average.module[3].weight.detach(), torch.stack(seen).mean(0))
    method.finalize()
    method.apply_zeros(average)
    assert torch.equal(average.module[3].weight == 0, model[3].weight == 0)


def test_a_layer_without_a_gradient_keeps_w_and_one_that_is_frozen_keeps_what_it_shows() -> None:
    model, opt, method = attached(gradient="u")
    for t in range(10):
        step(model, opt, t)
    first, last = method.layers
    before = first.w.clone()
    opt.zero_grad()
    (model[3].weight.square().sum()).backward()  # the convolution has no part in this
    opt.step()
    assert torch.equal(first.w, before)
    shown = model[0].weight.detach().clone()
    model[0].weight.requires_grad_(False)
    step(model, opt, 11)
    assert torch.equal(model[0].weight, shown)
    assert first.away is None
    assert last.away is not None


def test_stopped_in_the_middle_of_a_step_nothing_is_lost() -> None:
    """Whatever raises between the hooks: w is in the model or beside it, and the next step goes on from there."""

    class Interrupted(torch.optim.SGD):
        stop = False

        @torch.no_grad()
        def step(self, closure=None):
            if self.stop:
                raise KeyboardInterrupt
            return super().step(closure)

    model = network()
    opt = Interrupted(model.parameters(), lr=LR)
    method = rvsm.RVSM(model, "l0", sparsity=0.7, steps=STEPS).attach(opt)
    for t in range(10):
        step(model, opt, t)
    ws = kept(method)
    opt.stop = True
    with pytest.raises(KeyboardInterrupt):
        step(model, opt, 10)
    pulled = kept(method)
    assert all(layer.away is None for layer in method.layers)
    for w, now in zip(ws, pulled, strict=True):
        torch.testing.assert_close(now, w, rtol=0.3, atol=0)
    opt.stop = False
    for t in range(10, STEPS):
        step(model, opt, t)
    method.finalize()
    assert sum(int((w == 0).sum()) for w in weights(model)) == round(0.7 * sum(w.numel() for w in weights(model)))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown gradient 'v'; choose from auto, w, u, moving"):
        rvsm.RVSM(network(), rvsm.L0(1e-3), beta=1.0, gradient="v")
    with pytest.raises(ValueError, match="along the ramp of a target: give sparsity= and steps="):
        rvsm.RVSM(network(), rvsm.L0(1e-3), beta=1.0, gradient="moving")
    with pytest.raises(ValueError, match=r"order='printed' .* but gradient is 'u'; omit one of the two"):
        rvsm.RVSM(network(), rvsm.L0(1e-3), beta=1.0, gradient="u", order="printed")
