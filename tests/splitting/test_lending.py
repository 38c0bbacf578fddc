"""The sparse copy in the model for the time of a block."""

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import networks
import rvsm

network = partial(networks.network, norm=True, dropout=0.2, seed=5)


def batch(t: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(t)
    return torch.randn(16, 1, 6, 6, generator=generator), torch.randint(4, (16,), generator=generator)


def attached(**options: object) -> tuple[nn.Module, torch.optim.Optimizer, rvsm.RVSM]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    defaults = {"penalty": rvsm.L1(lam=5e-3), "beta": 0.2}
    return model, optimizer, rvsm.RVSM(model, **(options or defaults)).attach(optimizer)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, t: int) -> None:
    x, y = batch(t)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_the_model_is_at_u_and_comes_back() -> None:
    model, optimizer, method = attached()
    for t in range(3):
        train(model, optimizer, t)
    model[3].eval()
    before, modes_before = copy.deepcopy(model.state_dict()), modes(model)
    gradients = [p.grad.clone() for p in model.parameters()]
    u = rvsm.L1(lam=5e-3).prox(model[0].weight.detach(), 5.0)
    with method.sparse_weights(recalibrate=[batch(9)]):
        assert torch.equal(model[0].weight, u)
        assert (model[0].weight == 0).any()
        assert not torch.equal(model[1].running_mean, before["1.running_mean"])
        assert modes(model) == modes_before
        assert torch.is_grad_enabled()
        model.eval()
        model.train()
        model(batch(10)[0])
    assert modes(model) == modes_before
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.equal(p.grad, gradient)


def test_masked_output_has_no_shrinkage() -> None:
    model, optimizer, method = attached()
    train(model, optimizer, 0)
    w = model[0].weight.detach().clone()
    with method.sparse_weights(output="masked"):
        kept = model[0].weight != 0
        assert 0 < int(kept.sum()) < kept.numel()
        assert torch.equal(model[0].weight[kept], w[kept])


def test_everything_comes_back_when_the_body_raises() -> None:
    model, optimizer, method = attached()
    train(model, optimizer, 0)
    before, modes_before = copy.deepcopy(model.state_dict()), modes(model)
    with pytest.raises(ZeroDivisionError), method.sparse_weights(recalibrate=[batch(1)]):
        model.eval().double_trouble = 1 / 0
    with pytest.raises(ValueError, match="no batch"), method.sparse_weights(recalibrate=[]):
        pass
    assert modes(model) == modes_before
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "options",
    [
        {"penalty": rvsm.L0(lam=1e-3), "beta": 0.2},
        {"penalty": rvsm.L0(lam=1e-3), "beta": 0.2, "order": "printed"},
        {"penalty": "tl1", "sparsity": 0.9, "steps": 20},
    ],
    ids=["proof", "printed", "budget"],
)
def test_evaluating_every_step_or_never_gives_the_same_training(options: dict) -> None:
    ends = []
    for evaluate in (False, True):
        model, optimizer, method = attached(**options)
        loader = torch.utils.data.DataLoader(torch.randn(64, 1, 6, 6), batch_size=16, shuffle=True)
        torch.manual_seed(7)  # dropout and the loader draw from the global generator
        for t in range(20):
            train(model, optimizer, t)
            if evaluate:
                with method.sparse_weights(recalibrate=loader), torch.no_grad():
                    model(batch(t)[0])
                method.statistics()
        method.finalize(recalibrate=loader)
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_finalize_warns_of_stale_batch_norm_only_where_it_is_stale() -> None:
    model, optimizer, method = attached()
    train(model, optimizer, 0)
    with pytest.warns(UserWarning, match="batch-norm statistics still belong"):
        method.finalize()
    model, optimizer, method = attached(penalty="l0", sparsity=0.5, steps=20)
    for t in range(20):
        train(model, optimizer, t)
    method.finalize()  # healed: the statistics belong to the sparse weights; a warning would be an error here


def test_parameters_without_a_module() -> None:
    w = nn.Parameter(torch.tensor([3.0, 0.1]))
    w.grad = torch.zeros_like(w)
    optimizer = torch.optim.SGD([w], lr=0.1)
    method = rvsm.RVSM([("w", w)], rvsm.L0(lam=1.0), beta=1.0).attach(optimizer)
    with method.sparse_weights():
        assert w.tolist() == [3.0, 0.0]
    assert w[1] == torch.tensor(0.1)
    with pytest.raises(ValueError, match="recalibrate needs the network"):
        method.finalize(recalibrate=[torch.ones(1, 2)])
    assert w[1] == torch.tensor(0.1), "a refused finalize changes nothing"
    method.finalize()
    assert w.tolist() == [3.0, 0.0]


def test_a_finalize_that_fails_changes_nothing() -> None:
    model, optimizer, method = attached(penalty="l1", sparsity=0.5, steps=30)
    for t in range(18):
        train(model, optimizer, t)
    assert method.phase == "hold"
    before, state = copy.deepcopy(model.state_dict()), method.state_dict()
    with pytest.raises(ValueError, match="no batch"):
        method.finalize(recalibrate=[])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    after = method.state_dict()
    kept, memory = state.pop("memory")["w"], after.pop("memory")["w"]
    assert after == state
    assert kept.keys() == memory.keys()
    assert all(torch.equal(w, memory[name]) for name, w in kept.items())


def test_inside_autocast_no_cast_of_the_other_weights_is_left() -> None:
    """Autocast casts each weight once in a region and keeps the cast, whatever is written into the weight."""
    model, optimizer, method = attached()
    train(model, optimizer, 0)
    model.eval()
    x, _ = batch(1)

    def alone() -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    w = alone()
    with method.sparse_weights():
        u = alone()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            assert torch.equal(model(x), w)
            with method.sparse_weights():
                assert torch.equal(model(x), u)
    assert not torch.equal(u, w)


def test_recalibration_inside_autocast_is_that_of_the_sparse_weights() -> None:
    means = []
    for cached in (False, True):
        model, optimizer, method = attached()
        train(model, optimizer, 0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if cached:
                model(batch(1)[0])  # with casts of w
            method.finalize(recalibrate=[batch(2)])
        means.append(model[1].running_mean.clone())
    assert torch.equal(*means)
