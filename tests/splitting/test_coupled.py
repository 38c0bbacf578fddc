"""Channels that span layers live or die as a whole, by the norm of all of their parameters."""

import copy
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rvsm
from rvsm.coupling import find_channels
from rvsm.splitting.units import units

EXAMPLE = torch.zeros(1, 3, 8, 8)
STEPS = 12


class Network(nn.Module):
    """A residual network with a depthwise convolution and two branches side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Sequential(
            nn.Conv2d(8, 12, 1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Conv2d(12, 8, 1, bias=False), nn.BatchNorm2d(8),
        )  # fmt: skip
        self.left, self.right = nn.Conv2d(8, 6, 3, padding=1), nn.Conv2d(8, 5, 1)
        self.last = nn.Linear(11, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.deep(x))
        return self.last(torch.relu(torch.cat([self.left(x), self.right(x)], 1)).mean((2, 3)))


def train(
    method: type[Any] = rvsm.RVSM, *, made: int = STEPS, resume: bool = False, **options: Any
) -> tuple[Network, Any, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Network()
    options = {"groups": "coupled", "exclude": ["last.weight"], "example_input": EXAMPLE, **options}

    def attached(model: Network) -> tuple[Any, torch.optim.Optimizer]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return method(model, **options).attach(optimizer), optimizer

    sparsifier, optimizer = attached(model)
    for step in range(made):
        if resume and step == STEPS // 3:
            kept = [copy.deepcopy(part.state_dict()) for part in (model, optimizer, sparsifier)]
            sparsifier.release()
            model = Network()
            sparsifier, optimizer = attached(model)
            for part, state in zip((model, optimizer, sparsifier), kept, strict=True):
                part.load_state_dict(state)
        x = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().sum(1).mean().backward()
        optimizer.step()
    return model, sparsifier, optimizer


def parts(model: nn.Module) -> dict[int, list[Tensor]]:
    """Return the parts of each channel that may go, by its number."""
    channels = find_channels(model, EXAMPLE)
    found: dict[int, list[Tensor]] = {}
    for name, numbers in channels.outputs.items():
        for w in model.get_submodule(name).parameters(recurse=False):
            for number, part in zip(numbers.tolist(), w.detach(), strict=True):
                if number not in channels.kept:
                    found.setdefault(number, []).append(part)
    return found


METHODS = {
    "rvsm": (rvsm.RVSM, {"penalty": "l0"}),
    "rvsm l1": (rvsm.RVSM, {"penalty": "l1"}),
    "magnitude": (rvsm.Magnitude, {}),
    "acdc": (rvsm.ACDC, {"cycles": 2}),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("by", ["weights", "flops"])
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_channels_go_as_a_whole_and_meet_the_target_to_one_of_them(name: str, by: Any, scope: Any) -> None:
    method, options = METHODS[name]
    budget = rvsm.Budget(0.5, STEPS, by=by, scope=scope)
    model, sparsifier, _ = train(method, budget=budget, **options)
    sparsifier.finalize(recalibrate=[torch.randn(8, 3, 8, 8)])
    alive = {number: {bool(part.any()) for part in found} for number, found in parts(model).items()}
    assert all(len(states) == 1 for states in alive.values()), "a channel is zero in all its layers or in none"
    assert {False} in alive.values()
    for unit in units(sparsifier.layers) if scope == "layer" else [None]:
        layers = sparsifier.layers if unit is None else unit.layers
        zero = total = largest = 0.0
        for layer in layers:
            count = layer.multiplications if by == "flops" else 1
            dead = (layer.w.flatten(1) == 0).all(1) if layer.w.dim() > 1 else layer.w == 0
            zero += float(dead.sum()) * layer.w[0].numel() * count
            total += layer.w.numel() * count
            largest += layer.w[0].numel() * count
        assert abs(zero - 0.5 * total) <= largest
    smaller = rvsm.shrink(model, EXAMPLE)
    x = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(smaller.eval()(x), model.eval()(x), rtol=1e-4, atol=1e-5)
    removed = sum(states == {False} for states in alive.values())
    before, after = (find_channels(m, EXAMPLE).count for m in (model, smaller))
    assert before - after == removed


def test_the_formula_of_the_group_prox() -> None:
    penalty, beta = rvsm.L1(lam=0.1), 0.5
    model, sparsifier, _ = train(penalty=penalty, beta=beta, made=0)
    expected = {}
    for number, found in parts(model).items():
        w = torch.cat([part.flatten() for part in found])
        magnitude = w.square().mean().sqrt()
        expected[number] = (magnitude - penalty.lam / beta).clamp(min=0) / magnitude
    assert 0 < sum(scale == 0 for scale in expected.values()) < len(expected)
    ws = {number: [part.clone() for part in found] for number, found in parts(model).items()}
    value = sum(
        w.numel() * penalty.lam * float((w * expected[n]).square().mean().sqrt())
        for n, w in ((n, torch.cat([part.flatten() for part in found])) for n, found in ws.items())
    )
    assert sparsifier.statistics().penalty == pytest.approx(value, rel=1e-5)
    with sparsifier.sparse_weights():
        for number, found in parts(model).items():
            for part, w in zip(found, ws[number], strict=True):
                torch.testing.assert_close(part, w * expected[number])


def test_a_step_pulls_all_parts_by_the_norm_before_it() -> None:
    lam, beta, lr = 0.02, 0.5, 0.1
    model, _, optimizer = train(penalty=rvsm.L1(lam=lam), beta=beta, made=0)
    before = {number: [part.clone() for part in found] for number, found in parts(model).items()}
    for w in model.parameters():
        w.grad = torch.zeros_like(w)
    optimizer.step()
    for number, found in parts(model).items():
        magnitude = torch.cat([part.flatten() for part in before[number]]).square().mean().sqrt()
        scale = (magnitude - lam / beta).clamp(min=0) / magnitude
        for part, w in zip(found, before[number], strict=True):
            torch.testing.assert_close(part, w + lr * beta * (w * scale - w))


@pytest.mark.parametrize("penalty", ["l0", "l1"])
def test_a_resumed_training_goes_on_bit_for_bit(penalty: str) -> None:
    results = [train(penalty=penalty, sparsity=0.5, steps=STEPS, resume=resume) for resume in (False, True)]
    states = [model.state_dict() for model, _, _ in results]
    assert all(torch.equal(w, states[1][name]) for name, w in states[0].items())


def test_layers_that_have_to_stay_are_named() -> None:
    with pytest.warns(UserWarning, match="'last.weight': it is an output of the network"):
        rvsm.RVSM(Network(), "l0", sparsity=0.5, steps=9, groups="coupled", example_input=EXAMPLE)
    with pytest.warns(UserWarning, match=r"'stem.0.weight': 'deep.5.weight', with which it shares channels"):
        rvsm.RVSM(
            Network(), "l0", sparsity=0.5, steps=9, groups="coupled", example_input=EXAMPLE,
            exclude=["last.weight", "deep.5.weight"],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"example_input": None}, "needs the module and example_input="),
        (
            {"overrides": {"left.weight": {"groups": "filter"}}},
            r"must be used for all of them, but 'left.weight' has Filter\(\)",
        ),
        ({"overrides": {"deep.5.weight": {"sparsity": 0.1}}}, "share channels and need the same sparsity"),
        ({"include": ["last.weight"]}, "found no channels to remove: 'last.weight': it is an output of the network"),
    ],
    ids=["example", "groups", "sparsity", "none"],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    given = {"exclude": None if "include" in options else ["last.weight"], "example_input": EXAMPLE, **options}
    with pytest.raises(ValueError, match=message):
        rvsm.RVSM(Network(), "l0", sparsity=0.5, steps=9, groups="coupled", **given)


def test_methods_without_an_example_refuse() -> None:
    with pytest.raises(ValueError, match="needs the module and example_input="):
        rvsm.ADMM(Network(), sparsity=0.5, rho=0.1, groups="coupled")


def test_a_missing_extra_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(ImportError, match=r"pip install 'rvsm\[shrink\]'"):
        rvsm.RVSM(Network(), "l0", sparsity=0.5, steps=9, groups="coupled", example_input=EXAMPLE)
