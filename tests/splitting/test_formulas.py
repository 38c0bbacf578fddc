"""Each method against a literal transcription of its formula, under real optimizers."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import networks
import rvsm

LAM, BETA, STEPS = 2e-3, 0.5, 12
PENALTIES = {
    "l0": rvsm.L0(lam=LAM),
    "l1": rvsm.L1(lam=LAM),
    "tl1": rvsm.TransformedL1(lam=LAM, a=1.0),
    "mcp": rvsm.MCP(lam=0.05, gamma=3.0),
}
OPTIMIZERS: dict[str, Callable[[list[dict]], torch.optim.Optimizer]] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1),
    "nesterov": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "nesterov-foreach": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "nesterov-fused": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=1e-2, weight_decay=1e-1),
    "adamw-foreach": lambda groups: torch.optim.AdamW(groups, lr=1e-2, foreach=True),
    "adamw-fused": lambda groups: torch.optim.AdamW(groups, lr=1e-2, fused=True),
    "adamw-tensor-lr": lambda groups: torch.optim.AdamW(
        groups, lr=torch.tensor(1e-2, dtype=torch.float64), foreach=False
    ),
}


network = partial(networks.network, 2, 6, 5, seed=1, dtype=torch.float64)


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        x = torch.randn(8, 2, 6, 6, generator=generator, dtype=torch.float64)
        yield x, torch.randint(5, (8,), generator=generator)


def parts(model: nn.Sequential, make: Callable[[list[dict]], torch.optim.Optimizer]):
    """Return the two weights, an optimizer with two parameter groups of different learning rates, and a scheduler."""
    first, last = model[0], model[3]
    optimizer = make([{"params": first.parameters()}, {"params": last.parameters(), "lr": 0.02}])
    return [first.weight, last.weight], optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.3)


def gradient(model: nn.Module, x: Tensor, y: Tensor) -> None:
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()


def trained(make, method: Callable[[nn.Module], rvsm.RVSM]) -> list[Tensor]:
    model = network()
    weights, optimizer, scheduler = parts(model, make)
    method(model).attach(optimizer)
    for x, y in batches():
        gradient(model, x, y)
        optimizer.step()
        scheduler.step()
    return [w.detach() for w in weights]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_rvsm_proof_order(optimizer: str, penalty: str) -> None:
    p, model = PENALTIES[penalty], network()
    weights, opt, scheduler = parts(model, OPTIMIZERS[optimizer])
    for x, y in batches():
        gradient(model, x, y)
        for w, group in zip(weights, opt.param_groups, strict=True):
            u = p.prox(w.detach(), 1 / BETA)
            w.data -= group["lr"] * BETA * (w.data - u)
        opt.step()
        scheduler.step()
    ours = trained(OPTIMIZERS[optimizer], lambda m: rvsm.RVSM(m, p, beta=BETA))
    for a, b in zip(ours, weights, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rvsm_printed_order(optimizer: str) -> None:
    p, model = PENALTIES["l0"], network()
    weights, opt, scheduler = parts(model, OPTIMIZERS[optimizer])
    us = [p.prox(w.detach(), 1 / BETA) for w in weights]
    for x, y in batches():
        gradient(model, x, y)
        following = [p.prox(w.detach(), 1 / BETA) for w in weights]
        for w, u, group in zip(weights, us, opt.param_groups, strict=True):
            w.data -= group["lr"] * BETA * (w.data - u)
        us = following
        opt.step()
        scheduler.step()
    ours = trained(OPTIMIZERS[optimizer], lambda m: rvsm.RVSM(m, p, beta=BETA, order="printed"))
    for a, b in zip(ours, weights, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("order", ["proof", "printed"])
def test_rvsm_coupled(optimizer: str, order: str) -> None:
    p, model = PENALTIES["l1"], network()
    weights, opt, scheduler = parts(model, OPTIMIZERS[optimizer])
    us = [p.prox(w.detach(), 1 / BETA) for w in weights]
    for x, y in batches():
        gradient(model, x, y)
        following = [p.prox(w.detach(), 1 / BETA) for w in weights]
        for w, u, v in zip(weights, us, following, strict=True):
            w.grad += BETA * (w.detach() - (v if order == "proof" else u))
        us = following
        opt.step()
        scheduler.step()
    ours = trained(OPTIMIZERS[optimizer], lambda m: rvsm.RVSM(m, p, beta=BETA, order=order, decoupled=False))
    for a, b in zip(ours, weights, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("interval", [1, 4])
def test_admm(optimizer: str, hard: bool, interval: int) -> None:
    p, rho, model = PENALTIES["tl1"], 0.3, network()
    weights, opt, scheduler = parts(model, OPTIMIZERS[optimizer])

    def thresholded(v: Tensor) -> Tensor:
        if not hard:
            return p.prox(v, 1 / rho)
        kept = v.abs().flatten().argsort(descending=True)[: v.numel() - round(0.6 * v.numel())]
        return torch.zeros_like(v).view(-1).index_put((kept,), v.flatten()[kept]).view(v.shape)

    us, zs = [thresholded(w.detach()) for w in weights], [torch.zeros_like(w) for w in weights]
    for t, (x, y) in enumerate(batches(), start=1):
        gradient(model, x, y)
        for w, u, z, group in zip(weights, us, zs, opt.param_groups, strict=True):
            w.data -= group["lr"] * rho * (w.data - u + z / rho)
        opt.step()
        if t % interval == 0:
            us = [thresholded(w.detach() + z / rho) for w, z in zip(weights, zs, strict=True)]
            zs = [z + rho * (w.detach() - u) for w, u, z in zip(weights, us, zs, strict=True)]
        scheduler.step()
    kind = {"sparsity": 0.6} if hard else {"penalty": p}
    ours = trained(OPTIMIZERS[optimizer], lambda m: rvsm.ADMM(m, rho=rho, interval=interval, **kind))
    for a, b in zip(ours, weights, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_proxsgd(optimizer: str, penalty: str) -> None:
    # A learning rate makes a small threshold, so λ is larger here.
    p, model = dataclasses.replace(PENALTIES[penalty], lam=0.5), network()
    weights, opt, scheduler = parts(model, OPTIMIZERS[optimizer])
    for x, y in batches():
        gradient(model, x, y)
        opt.step()
        for w, group in zip(weights, opt.param_groups, strict=True):
            w.data = p.prox(w.data, float(group["lr"]))
        scheduler.step()
    ours = trained(OPTIMIZERS[optimizer], lambda m: rvsm.ProxSGD(m, p))
    for a, b in zip(ours, weights, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-13)
    assert any((w == 0).any() for w in ours)


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adamw-fused"])
def test_magnitude(optimizer: str) -> None:
    sparsity, model = 0.8, network()
    weights, opt, scheduler = parts(model, OPTIMIZERS[optimizer])
    ramp = round(0.5 * STEPS)
    total = sum(w.numel() for w in weights)
    masks = [torch.zeros_like(w, dtype=torch.bool) for w in weights]
    for t, (x, y) in enumerate(batches()):
        gradient(model, x, y)
        if t <= ramp:
            count = round(sparsity * (1 - (1 - t / ramp) ** 3) * total)
            everything = torch.cat([w.detach().abs().flatten() for w in weights])
            gone = torch.zeros(total, dtype=torch.bool).index_fill_(0, everything.argsort()[:count], True)
            masks = [m.view_as(w) for m, w in zip(gone.split([w.numel() for w in weights]), weights, strict=True)]
            for w, mask in zip(weights, masks, strict=True):
                w.data[mask] = 0
                for state in opt.state[w].values():
                    if state.shape == w.shape:
                        state[mask] = 0
        for w, mask in zip(weights, masks, strict=True):
            w.grad[mask] = 0
        opt.step()
        scheduler.step()
    ours = trained(OPTIMIZERS[optimizer], lambda m: rvsm.Magnitude(m, sparsity=sparsity, steps=STEPS))
    for a, b in zip(ours, weights, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-13)
    assert sum(int((w == 0).sum()) for w in ours) == round(sparsity * total)


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adamw-fused"])
def test_acdc(optimizer: str) -> None:
    sparsity, model = 0.8, network()
    weights, opt, scheduler = parts(model, OPTIMIZERS[optimizer])
    total = sum(w.numel() for w in weights)
    masks: list[Tensor] = []
    dense = "ddsdds"  # the ramp, two cycles of three steps; then sparse to the end
    for t, (x, y) in enumerate(batches()):
        gradient(model, x, y)
        if dense[t : t + 1] == "d":
            masks = []
        elif t in (2, 5, 6):
            everything = torch.cat([w.detach().abs().flatten() for w in weights])
            count = round(sparsity * total)
            gone = torch.zeros(total, dtype=torch.bool).index_fill_(0, everything.argsort()[:count], True)
            masks = [m.view_as(w) for m, w in zip(gone.split([w.numel() for w in weights]), weights, strict=True)]
        for w, mask in zip(weights, masks, strict=bool(masks)):
            w.data[mask] = 0
            w.grad[mask] = 0
            for state in opt.state[w].values():
                if state.shape == w.shape:
                    state[mask] = 0
        opt.step()
        scheduler.step()
    ours = trained(OPTIMIZERS[optimizer], lambda m: rvsm.ACDC(m, sparsity=sparsity, steps=STEPS, cycles=2))
    for a, b in zip(ours, weights, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-13)
    assert sum(int((w == 0).sum()) for w in ours) == round(sparsity * total)


def test_blocks_give_the_same_as_the_whole() -> None:
    """A tensor larger than a block, in channels-last order, is pulled as a whole one is."""
    torch.manual_seed(0)
    w = nn.Parameter(torch.randn(300, 300, 3, 3).to(memory_format=torch.channels_last))
    w.grad = torch.zeros_like(w)
    optimizer = torch.optim.SGD([w], lr=0.1)
    expected = w.detach() - 0.1 * 0.5 * (w.detach() - rvsm.L0(lam=0.2).prox(w.detach(), 2.0))
    rvsm.RVSM([("w", w)], rvsm.L0(lam=0.2), beta=0.5).attach(optimizer)
    optimizer.step()
    torch.testing.assert_close(w.detach(), expected)


def test_overrides_act_on_single_layers() -> None:
    p, model = PENALTIES["l1"], network()
    strong = rvsm.L0(lam=0.5)
    weights, opt, _ = parts(model, OPTIMIZERS["sgd"])
    before = [w.detach().clone() for w in weights]
    rvsm.RVSM(model, p, beta=BETA, overrides={"3.*": {"penalty": strong, "beta": 0.25}}).attach(opt)
    for w in model.parameters():
        w.grad = torch.zeros_like(w)
    opt.step()
    torch.testing.assert_close(weights[0].detach(), before[0] - 0.1 * BETA * (before[0] - p.prox(before[0], 1 / BETA)))
    torch.testing.assert_close(weights[1].detach(), before[1] - 0.02 * 0.25 * (before[1] - strong.prox(before[1], 4.0)))


def test_beta_follows_the_largest_learning_rate_so_far() -> None:
    """Whatever makes the learning rate rise, the pull of a step is at most pull/steps, and the threshold stays."""
    model = network()
    _, opt, _ = parts(model, OPTIMIZERS["sgd"])
    sparsifier = rvsm.RVSM(model, "l0", sparsity=0.5, steps=100, pull=6.0).attach(opt)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    peaks = [0.0, 0.0]
    thresholds = []
    for rates in ((0.0, 0.0), (1e-6, 0.0), (0.1, 0.02), (0.4, 0.2), (0.01, 0.3), (0.2, 0.2)):
        for group, lr in zip(opt.param_groups, rates, strict=True):
            group["lr"] = lr
        opt.step()
        peaks = [max(peak, lr) for peak, lr in zip(peaks, rates, strict=True)]
        expected = [6 / 100 / peak if peak else None for peak in peaks]
        assert [layer.beta for layer in sparsifier.layers] == expected
        thresholds.append([layer.threshold for layer in sparsifier.statistics().layers])
    # A look at every step of this short ramp would hide it: the weights have hardly moved between the last two.
    assert thresholds[-1] == pytest.approx(thresholds[-2], rel=0.3)


def test_the_threshold_stays_when_beta_changes() -> None:
    model = network()
    _, opt, _ = parts(model, OPTIMIZERS["sgd"])
    budget = rvsm.Budget(0.5, 1000, every=400)
    sparsifier = rvsm.RVSM(model, "tl1", budget=budget).attach(opt)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    opt.step()
    sparsifier.step = 400
    opt.step()
    before = sparsifier.statistics().layers
    opt.param_groups[0]["lr"] *= 7
    opt.step()
    after = sparsifier.statistics().layers
    assert after[0].beta == pytest.approx(before[0].beta / 7)
    assert after[0].threshold == pytest.approx(before[0].threshold, rel=1e-12)
    assert after[1] == before[1] or after[1].lam == before[1].lam


def test_regression_value_a_of_the_one_layer_network() -> None:
    """The proof's order and the printed one reach the limit that theory gives; see docs/theory for the network."""
    truth = torch.tensor([0.8, 0.6, 0.0, 0.0], dtype=torch.float64)
    limits = {
        "l1": (rvsm.L1(lam=0.01), [0.7820226035, 0.5761977966]),
        "l0": (rvsm.L0(lam=0.01), [0.8207374600, 0.5269984504]),
        "tl1": (rvsm.TransformedL1(lam=0.01), [0.7910386904, 0.5634639516]),
    }
    for order in ("proof", "printed"):
        rows = torch.tensor([[-0.5, -0.5, 0.5, 0.5]] * len(limits), dtype=torch.float64)
        named = [(name, nn.Parameter(row)) for name, row in zip(limits, rows, strict=True)]
        optimizer = torch.optim.SGD([w for _, w in named], lr=1.0, foreach=False)
        each = {name: {"penalty": penalty} for name, (penalty, _) in limits.items()}
        rvsm.RVSM(named, rvsm.L0(lam=0.01), beta=0.04, order=order, overrides=each).attach(optimizer)
        for _ in range(200):
            for (_, w), slope in zip(named, no_overlap_gradient(rows, truth, k=4), strict=True):
                w.grad = slope
            optimizer.step()
        expected = torch.tensor([limit for _, limit in limits.values()], dtype=torch.float64)
        torch.testing.assert_close(rows[:, :2], expected, rtol=0, atol=1e-9)


def test_the_printed_order_cycles_where_the_proofs_order_converges() -> None:
    angle = torch.tensor(1.2, dtype=torch.float64)
    truth = torch.stack([angle.cos(), angle.sin()])
    ends = {}
    for order in ("proof", "printed"):
        start = torch.tensor(2.5, dtype=torch.float64)
        w = nn.Parameter(torch.stack([start.cos(), start.sin()]))
        optimizer = torch.optim.SGD([w], lr=1.8)
        rvsm.RVSM([("w", w)], rvsm.L0(lam=0.36 * 0.066), beta=0.066, order=order).attach(optimizer)
        path = []
        for _ in range(200):
            w.grad = no_overlap_gradient(w.detach(), truth, k=4)
            optimizer.step()
            path.append(w.detach().clone())
        ends[order] = path[-3:]
    a, b, c = ends["printed"]
    torch.testing.assert_close(a, c, rtol=0, atol=1e-12)
    assert (a - b).abs().max() > 0.1
    torch.testing.assert_close(ends["proof"][0], ends["proof"][2], rtol=0, atol=1e-9)


def no_overlap_gradient(w: Tensor, truth: Tensor, k: int) -> Tensor:
    """Return the population gradient of the one-layer no-overlap ReLU network (Dinh & Xin, Lemma 2), row by row."""
    pi = torch.pi

    def size(v: Tensor) -> Tensor:
        return v.norm(dim=-1, keepdim=True)

    a, b = w / size(w), truth / size(truth)
    theta = 2 * torch.atan2(size(a - b), size(a + b))
    ratio = size(truth) / size(w)
    radial = k + (k * k - k) / pi - k / pi * ratio * theta.sin() - (k * k - k) / pi * ratio
    return (radial * w - k / pi * (pi - theta) * truth) / k**2


def test_groups_pull_whole_filters() -> None:
    model = network()
    weights, opt, _ = parts(model, OPTIMIZERS["sgd"])
    copied = copy.deepcopy(weights[0].detach())
    norms = copied.flatten(1).norm(dim=1)
    lam = float(norms.median() ** 2) / 2 * BETA
    groups = rvsm.Filter(weighted=False)
    rvsm.RVSM(model, rvsm.L0(lam=lam), beta=BETA, groups=groups, include=["0.weight"]).attach(opt)
    for w in model.parameters():
        w.grad = torch.zeros_like(w)
    opt.step()
    moved = (weights[0].detach() != copied).flatten(1)
    assert torch.equal(moved.all(dim=1), norms <= norms.median())
    assert torch.equal(moved.any(dim=1), norms <= norms.median())


def test_beta_of_the_total_pull_begins_anew_with_another_optimizer() -> None:
    model = nn.Linear(20, 5)
    first, second = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(model.parameters(), lr=1e-3)
    sparsifier = rvsm.RVSM(model, "l0", sparsity=0.5, steps=100, pull=6.0)

    def stepped(opt: torch.optim.Optimizer) -> tuple[float, float]:
        sparsifier.attach(opt)
        for _ in range(3):
            opt.zero_grad()
            model(torch.ones(2, 20)).sum().backward()
            opt.step()
        sparsifier.detach()
        (layer,) = sparsifier.statistics().layers
        beta = sparsifier.layers[0].beta
        assert beta is not None
        return beta, layer.threshold

    assert stepped(first)[0] == pytest.approx(0.6)
    first.param_groups[0]["lr"] = 0.01
    assert stepped(first)[0] == pytest.approx(0.6), "a lower rate of the same one is a schedule"
    before = sparsifier.statistics().layers[0].threshold
    beta, threshold = stepped(second)
    assert beta == pytest.approx(60)
    assert threshold == pytest.approx(before, rel=0.2), "λ follows, so that no weight is cut by the change"


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_pull_is_a_pull_uphill_too(decoupled: bool) -> None:
    w = nn.Parameter(torch.tensor([[0.5]]))
    opt = torch.optim.SGD([w], lr=0.1, maximize=True)
    rvsm.RVSM([("w", w)], rvsm.L0(lam=10.0), beta=1.0, decoupled=decoupled).attach(opt)
    w.grad = torch.zeros_like(w)
    opt.step()
    assert w.item() == pytest.approx(0.45)
