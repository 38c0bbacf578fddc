"""The methods of the published scripts, against loops as the scripts have them."""

import pytest
import torch
from torch import Tensor, nn

import rvsm
from rvsm.paper.published import PublishedADMM, PublishedRVSM
from rvsm.splitting import Method

EPOCHS, EPOCH_STEPS, LR = 3, 4, 0.1
RHO, BETA, SHARE = 0.3, 0.5, 0.6
PENALTIES = {"l0": rvsm.L0(lam=2e-3), "l1": rvsm.L1(lam=1e-2), "tl1": rvsm.TransformedL1(lam=1e-2)}


def network() -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.Flatten(), nn.Linear(20, 5)]
    return nn.Sequential(*layers).to(torch.float64)


def convolutions(model: nn.Sequential) -> list[Tensor]:
    return [model[0].weight, model[3].weight]


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, nesterov=True, weight_decay=1e-2)


def gradient(model: nn.Module, t: int) -> None:
    generator = torch.Generator().manual_seed(t)
    x = torch.randn(8, 2, 6, 6, generator=generator, dtype=torch.float64)
    model.zero_grad()
    nn.functional.cross_entropy(model(x), torch.randint(5, (8,), generator=generator)).backward()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, t: int) -> None:
    gradient(model, t)
    optimizer.step()


def make(kind: str, model: nn.Module, epoch_steps: int = EPOCH_STEPS) -> Method:
    if kind == "admm":
        return PublishedADMM(model, rho=RHO, sparsity=SHARE, epoch_steps=epoch_steps)
    return PublishedRVSM(model, PENALTIES[kind], beta=BETA, epoch_steps=epoch_steps)


def trained(kind: str, steps: int) -> tuple[nn.Sequential, torch.optim.Optimizer, Method]:
    model = network()
    optimizer = optimizer_of(model)
    method = make(kind, model).attach(optimizer)
    for t in range(steps):
        step(model, optimizer, t)
    return model, optimizer, method


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kind", PENALTIES)
def test_the_script_of_rvsm(kind: str) -> None:
    model, penalty = network(), PENALTIES[kind]
    for epoch in range(EPOCHS):
        optimizer = optimizer_of(model)
        for t in range(EPOCH_STEPS):
            gradient(model, epoch * EPOCH_STEPS + t)
            for w in convolutions(model):
                w.data -= LR * BETA * (w.data - penalty.prox(w.data, 1 / BETA))
            optimizer.step()
        for w in convolutions(model):
            w.data = penalty.prox(w.data, 1 / BETA)
    ours, _, _ = trained(kind, EPOCHS * EPOCH_STEPS)
    assert_same(ours, model)
    zeros = sum(int((w == 0).sum()) for w in convolutions(ours))
    assert 0 < zeros < sum(w.numel() for w in convolutions(ours))


def test_the_script_of_admm() -> None:
    def thresholded(v: Tensor) -> Tensor:
        return torch.where(v.abs() < v.quantile(SHARE), 0, v)

    model = network()
    ws = convolutions(model)
    for epoch in range(EPOCHS):
        optimizer = optimizer_of(model)
        us, zs = [thresholded(w.data) for w in ws], [torch.zeros_like(w) for w in ws]
        for t in range(EPOCH_STEPS):
            gradient(model, epoch * EPOCH_STEPS + t)
            for _ in ws:
                for w, u, z in zip(ws, us, zs, strict=True):
                    w.data -= LR * RHO * (w.data - u + z / RHO)
            optimizer.step()
            us = [thresholded(w.data + z / RHO) for w, z in zip(ws, zs, strict=True)]
            zs = [z + RHO * (w.data - u) for w, u, z in zip(ws, us, zs, strict=True)]
        for w, u in zip(ws, us, strict=True):
            w.data = u.clone()
    ours, _, _ = trained("admm", EPOCHS * EPOCH_STEPS)
    assert_same(ours, model)
    assert all(0 < int((w == 0).sum()) < SHARE * w.numel() for w in convolutions(ours))


def test_a_quantile_of_signed_weights_is_not_one_of_magnitudes() -> None:
    conv = nn.Conv2d(100, 100, 3)
    conv.weight.data.normal_()
    optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)

    def zeros(method: Method) -> float:
        share = method.attach(optimizer).statistics().sparsity
        method.detach()
        return share

    assert zeros(PublishedADMM(conv, rho=0.1, sparsity=0.6, epoch_steps=5)) == pytest.approx(0.2, abs=0.01)
    assert zeros(PublishedADMM(conv, rho=0.1, sparsity=0.9, epoch_steps=5)) == pytest.approx(0.8, abs=0.01)
    assert zeros(rvsm.ADMM(conv, rho=0.1, sparsity=0.6)) == 0.6
    # Below the median the threshold is negative, and nothing is smaller.
    assert zeros(PublishedADMM(conv, rho=0.1, sparsity=0.4, epoch_steps=5)) == 0


def test_the_pull_is_made_once_for_each_layer() -> None:
    convs = nn.Sequential(*(nn.Conv2d(1, 1, (1, 4), bias=False) for _ in range(3)))
    for conv in convs:
        conv.weight.data = torch.tensor([-3.0, 0.5, 1.0, 2.0]).view(1, 1, 1, 4)
        conv.weight.grad = torch.zeros(1, 1, 1, 4)
    optimizer = torch.optim.SGD(convs.parameters(), lr=0.5)
    PublishedADMM(convs, rho=0.4, sparsity=0.7, epoch_steps=10).attach(optimizer)
    optimizer.step()
    # The quantile is 1.1, so u = (-3, 0, 0, 2); three pulls, each by a fifth, leave 0.8³ of the gap.
    for conv in convs:
        torch.testing.assert_close(conv.weight.flatten(), torch.tensor([-3.0, 0.5 * 0.512, 0.512, 2.0]))


@pytest.mark.parametrize("kind", ["l0", "l1", "admm"])
def test_w_is_overwritten_and_momentum_restarts_at_the_end_of_an_epoch_and_only_there(kind: str) -> None:
    model = network()
    optimizer = optimizer_of(model)
    method = make(kind, model).attach(optimizer)
    for t in range(2 * EPOCH_STEPS):
        step(model, optimizer, t)
        zeros = sum(int((w == 0).sum()) for w in convolutions(model))
        if (t + 1) % EPOCH_STEPS:
            assert zeros == 0
            assert method.statistics().gap > 0
            assert set(optimizer.state) == set(model.parameters())
        else:
            assert zeros > 0
            assert method.statistics().gap == 0
            assert not optimizer.state


def test_multipliers_restart_with_each_epoch() -> None:
    model, optimizer, method = trained("admm", EPOCH_STEPS - 1)
    assert all(method.layers.memory["z"][layer.name].abs().sum() > 0 for layer in method.layers)
    step(model, optimizer, EPOCH_STEPS - 1)
    assert method.layers.memory == {}
    step(model, optimizer, EPOCH_STEPS)
    for layer in method.layers:
        u, z = (method.layers.memory[kind][layer.name] for kind in ("u", "z"))
        torch.testing.assert_close(z, RHO * (layer.w - u))


def test_only_convolutions_of_images() -> None:
    model = nn.Sequential(nn.Conv1d(2, 2, 1), nn.Conv2d(1, 1, 1), nn.Conv3d(1, 1, 1), nn.Linear(2, 2))
    for kind in ("l0", "admm"):
        assert [layer.name for layer in make(kind, model).layers] == ["1.weight"]


def test_what_is_finalized_after_an_epoch_is_what_the_script_tested() -> None:
    """A second soft thresholding would shrink the weights, and zero more of them."""
    model, _, method = trained("l1", 2 * EPOCH_STEPS)
    before = [w.detach().clone() for w in convolutions(model)]
    with method.sparse_weights():
        assert all(torch.equal(a, b) for a, b in zip(before, convolutions(model), strict=True))
    method.finalize()
    assert all(torch.equal(a, b) for a, b in zip(before, convolutions(model), strict=True))


def test_the_untrained_network_is_thresholded_when_it_is_looked_at() -> None:
    model = network()
    method = make("l1", model).attach(optimizer_of(model))
    assert method.statistics().gap > 0
    assert method.statistics().sparsity > 0


def test_after_finalize_epochs_mean_nothing() -> None:
    model, optimizer, method = trained("l1", EPOCH_STEPS + 1)
    method.finalize(recalibrate=torch.ones(2, 2, 6, 6, dtype=torch.float64))
    zeros = [w == 0 for w in convolutions(model)]
    for t in range(2 * EPOCH_STEPS):
        step(model, optimizer, t)
        assert optimizer.state
    assert all(torch.equal(z, w == 0) for z, w in zip(zeros, convolutions(model), strict=True))


def test_a_layer_without_a_gradient_in_the_last_step_is_overwritten_too() -> None:
    for kind in ("l0", "admm"):
        model, optimizer, _ = trained(kind, EPOCH_STEPS - 1)
        gradient(model, EPOCH_STEPS)
        model[0].weight.grad = None
        assert (model[0].weight != 0).all()
        optimizer.step()
        assert (model[0].weight == 0).any(), kind


def test_a_frozen_layer_is_left_alone() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = optimizer_of(model)
    with pytest.warns(UserWarning, match=r"frozen or not in the optimizer and stay unchanged: 0\.weight"):
        make("l0", model).attach(optimizer)
    for t in range(EPOCH_STEPS):
        step(model, optimizer, t)
    assert torch.equal(model[0].weight, before)
    assert (model[3].weight == 0).any()


def test_a_state_of_other_epochs_is_refused() -> None:
    for kind in ("l0", "admm"):
        state = make(kind, network(), epoch_steps=7).state_dict()
        with pytest.raises(ValueError, match="different epoch_steps: 7, but here it is 4"):
            make(kind, network()).load_state_dict(state)


@pytest.mark.parametrize("kind", ["l0", "admm"])
def test_errors(kind: str) -> None:
    pairs = list(network().named_parameters())
    with pytest.raises(ValueError, match=r"-published needs a torch\.nn\.Module with convolutions but got list"):
        make(kind, pairs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sparsifies only convolution weights of four dimensions but found none"):
        make(kind, nn.Sequential(nn.Conv1d(2, 2, 1), nn.Linear(2, 2)))
    for steps in (0, -1, True, 2.5, None):
        with pytest.raises(ValueError, match=f"epoch_steps must be an integer ≥ 1 but is {steps}"):
            make(kind, network(), epoch_steps=steps)  # type: ignore[arg-type]


def test_errors_of_the_methods_they_derive_from() -> None:
    model = network()
    with pytest.raises(ValueError, match=r"for 60 % write 0\.6"):
        PublishedADMM(model, rho=0.1, sparsity=60, epoch_steps=5)
    with pytest.raises(ValueError, match="rho must be > 0"):
        PublishedADMM(model, rho=0, sparsity=0.6, epoch_steps=5)
    with pytest.raises(ValueError, match="beta must be > 0"):
        PublishedRVSM(model, rvsm.L0(lam=1e-3), beta=-1, epoch_steps=5)
    with pytest.raises(ValueError, match="penalty 'l0' needs a λ"):
        PublishedRVSM(model, "l0", beta=1, epoch_steps=5)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=20)
    PublishedADMM(model, rho=0.1, sparsity=0.6, epoch_steps=5).attach(optimizer)
    with pytest.raises(ValueError, match=r"learning rate × β must be < 1 but is 20 × 0\.1"):
        step(model, optimizer, 0)
