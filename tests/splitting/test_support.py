"""Zeros that stay zero."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import networks
import rvsm
from rvsm.splitting.layers import Layer
from rvsm.splitting.support import pack, unpack
from rvsm.splitting.zeros import mask_of

OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.1),
    "adamw-fused": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.1, fused=True),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=1e-3, momentum=0.9, centered=True, weight_decay=0.1),
}


network = partial(networks.network, seed=4)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for t in range(steps):
        generator = torch.Generator().manual_seed(t)
        x, y = torch.randn(16, 1, 6, 6, generator=generator), torch.randint(4, (16,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def zeros(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() == 0 for name, p in model.named_parameters() if p.dim() > 1}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def trained(optimizer: str) -> tuple[nn.Module, torch.optim.Optimizer, rvsm.RVSM]:
    model = network()
    opt = OPTIMIZERS[optimizer](model)
    method = rvsm.RVSM(model, rvsm.L0(lam=2e-3), beta=0.5).attach(opt)
    train(model, opt, 20)
    return model, opt, method


def sparse_model(optimizer: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model, opt, method = trained(optimizer)
    method.finalize()
    assert 0.1 < float(torch.cat([z.flatten() for z in zeros(model).values()]).float().mean()) < 0.99
    return model, opt


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_zeros_stay_zero_with_the_same_optimizer(optimizer: str) -> None:
    model, opt = sparse_model(optimizer)
    before, weights = zeros(model), copy.deepcopy(model.state_dict())
    train(model, opt, 50)
    assert same(before, zeros(model))
    assert not torch.equal(model[0].weight, weights["0.weight"])


def test_zeros_stay_zero_when_the_method_was_detached_before_it_was_finalized() -> None:
    model, opt, method = trained("sgd")
    method.detach()
    method.finalize()
    before = zeros(model)
    train(model, opt, 50)
    assert same(before, zeros(model))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_zeros_stay_zero_with_a_new_optimizer(optimizer: str) -> None:
    model, _ = sparse_model("sgd")
    before = zeros(model)
    train(model, OPTIMIZERS[optimizer](model), 50)
    assert same(before, zeros(model))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("copied", [True, False], ids=["deepcopy", "reload"])
def test_zeros_stay_zero_after_keep_zeros(optimizer: str, copied: bool) -> None:
    model, _ = sparse_model("sgd")
    fresh = copy.deepcopy(model) if copied else network()
    fresh.load_state_dict(model.state_dict())
    before = zeros(fresh)
    support = rvsm.keep_zeros(fresh)
    train(fresh, OPTIMIZERS[optimizer](fresh), 50)
    assert same(before, zeros(fresh))
    support.remove()
    train(fresh, OPTIMIZERS[optimizer](fresh), 2)
    assert not same(before, zeros(fresh)), "after remove() the weights are free again"


def test_a_copy_without_keep_zeros_loses_them() -> None:
    """The reason for keep_zeros: hooks do not travel with a copy."""
    model, _ = sparse_model("sgd")
    fresh = copy.deepcopy(model)
    before = zeros(fresh)
    train(fresh, OPTIMIZERS["sgd"](fresh), 2)
    assert not same(before, zeros(fresh))


def test_keep_zeros_beside_an_optimizer_that_has_momentum() -> None:
    model = network()
    optimizer = OPTIMIZERS["sgd"](model)
    train(model, optimizer, 5)
    with torch.no_grad():
        model[3].weight[:, ::2] = 0
    rvsm.keep_zeros(model)
    train(model, optimizer, 5)
    assert not model[3].weight[:, ::2].any()
    assert model[3].weight[:, 1::2].all()


def test_zeros_stay_zero_in_odd_ways_of_training() -> None:
    """Old momentum loaded into a new optimizer, and gradients set by hand."""
    model, _ = sparse_model("sgd")
    before = zeros(model)
    fresh = OPTIMIZERS["sgd"](model)
    dense = OPTIMIZERS["sgd"](dense_model := network())
    train(dense_model, dense, 3)
    fresh.load_state_dict(dense.state_dict())
    train(model, fresh, 3)
    assert same(before, zeros(model))
    x = torch.randn(4, 1, 6, 6)
    for p, gradient in zip(
        model.parameters(), torch.autograd.grad(model(x).sum(), list(model.parameters())), strict=True
    ):
        p.grad = gradient
    fresh.step()
    assert same(before, zeros(model))


def test_the_zeros_of_a_frozen_weight_stay_when_it_is_unfrozen() -> None:
    model = network()
    with torch.no_grad():
        model[3].weight[:, ::2] = 0
    model[3].weight.requires_grad_(False)
    support = rvsm.keep_zeros(model)
    assert not model[3].weight.requires_grad
    model[3].weight.requires_grad_(True)
    train(model, OPTIMIZERS["sgd"](model), 5)
    assert not model[3].weight[:, ::2].any()
    assert not model[3].weight.grad[:, ::2].any(), "clipping sees the gradients of the others only"
    support.remove()
    train(model, OPTIMIZERS["sgd"](model), 1)
    assert model[3].weight.grad[:, ::2].any()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_zeros_stay_zero_with_an_optimizer_that_mixes_entries() -> None:
    model = nn.Linear(16, 8, bias=False)
    optimizer = torch.optim.Muon(model.parameters(), lr=0.02)
    method = rvsm.RVSM(model, "l0", sparsity=0.75, steps=20).attach(optimizer)
    x = torch.randn(32, 16)
    for _ in range(20):
        optimizer.zero_grad()
        (model(x) - x[:, :8]).square().mean().backward()
        optimizer.step()
        if method.phase == "heal" and method.step > 14:
            assert int((model.weight == 0).sum()) == 96
    method.finalize()
    for muon in (optimizer, torch.optim.Muon(model.parameters(), lr=0.02)):
        model(x).square().mean().backward()
        muon.step()
        assert int((model.weight == 0).sum()) == 96


def test_overflowing_gradients_do_not_poison_the_zeros() -> None:
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.data = torch.tensor([[0.0, 1.0]])
    rvsm.keep_zeros(layer)
    layer(torch.tensor([[torch.inf, 1.0]])).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[0.0, 1.0]]


def test_sparse_gradients_are_masked_where_they_are() -> None:
    """Those of an embedding, which may name a row several times."""
    model = nn.Sequential(nn.Embedding(50, 16, sparse=True), nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = ["0.weight", "2.weight"]
    method = rvsm.RVSM(model, "l0", sparsity=0.8, steps=40, include=names).attach(optimizer)
    for _ in range(40):
        optimizer.zero_grad()
        model(torch.randint(0, 50, (32, 4))).square().mean().backward()
        optimizer.step()
    method.finalize()
    w = model[0].weight
    assert w.grad.is_sparse
    assert not w.grad.to_dense()[w == 0].any()
    assert w.grad.to_dense()[w != 0].any()
    assert sum(int((p == 0).sum()) for p in (w, model[2].weight)) == round(0.8 * (50 * 16 + 640))


@pytest.mark.parametrize("shape", [(1,), (8,), (9,), (3, 5, 7, 1), (2, 3, 4, 5)])
def test_packing_is_undone_by_unpacking(shape: tuple[int, ...]) -> None:
    mask = torch.rand(shape) < 0.3
    like = torch.zeros(shape)
    if len(shape) == 4:
        like = like.to(memory_format=torch.channels_last)
    assert torch.equal(unpack(pack(mask), mask.shape), mask)
    restored = mask_of(pack(mask), Layer("w", like))
    assert torch.equal(restored, mask)
    assert restored.stride() == like.stride()
    assert pack(mask).numel() == (mask.numel() + 7) // 8


def test_zeros_of_a_layer_that_is_frozen_while_it_heals_stay_held() -> None:
    model = network()
    opt = OPTIMIZERS["sgd"](model)
    method = rvsm.RVSM(model, "l0", sparsity=0.8, steps=20).attach(opt)
    train(model, opt, 18)
    before = zeros(model)
    model[0].weight.requires_grad_(False)
    train(model, opt, 2)
    with pytest.warns(UserWarning, match=r"frozen or never had a gradient"):
        method.finalize()
    assert same(before, zeros(model)), "no survivor of the other layer is cut in its place"
    model[0].weight.requires_grad_(True)
    train(model, OPTIMIZERS["sgd"](model), 3)
    assert same(before, zeros(model))


def test_a_layer_that_is_frozen_on_the_ramp_of_pruning_keeps_its_zeros() -> None:
    model = network()
    opt = OPTIMIZERS["sgd"](model)
    rvsm.Magnitude(model, sparsity=0.8, steps=20).attach(opt)
    train(model, opt, 8)
    gone = zeros(model)["0.weight"]
    assert gone.any()
    model[0].weight.requires_grad_(False)
    train(model, opt, 4)
    model[0].weight.requires_grad_(True)
    train(model, opt, 1)
    assert zeros(model)["0.weight"][gone].all()


def test_a_layer_that_wakes_up_while_the_others_heal_stays_dense() -> None:
    model = network()
    opt = OPTIMIZERS["sgd"](model)
    method = rvsm.RVSM(model, "l0", sparsity=0.8, steps=20).attach(opt)
    model[0].weight.requires_grad_(False)
    train(model, opt, 18)
    before = zeros(model)
    model[0].weight.requires_grad_(True)
    train(model, opt, 2)
    with pytest.warns(UserWarning, match=r"first gradient after the zeros were fixed, and stay dense: 0\.weight"):
        method.finalize()
    assert same(before, zeros(model))


def test_of_two_that_hold_zeros_one_may_let_go() -> None:
    model, opt = sparse_model("sgd")
    before = zeros(model)
    rvsm.keep_zeros(model).remove()
    train(model, opt, 3)
    assert same(before, zeros(model))


def test_released_zeros_may_grow_and_be_cut_again() -> None:
    model, opt, method = trained("sgd")
    method.finalize()
    method.release()
    method.attach(opt)
    train(model, opt, 3)
    assert not any(z.any() for z in zeros(model).values())
    method.finalize()
    assert zeros(model)["3.weight"].any()
