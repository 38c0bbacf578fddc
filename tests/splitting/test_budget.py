"""The target sparsity is met, on real trainings, whatever the penalty, the groups and the scope."""

import re
from collections.abc import Callable
from math import ceil

import pytest
import torch
from torch import Tensor, nn

import rvsm
from rvsm.groups import GROUPS
from rvsm.penalties import PENALTIES
from rvsm.splitting import METHODS, Method

STEPS = 24
SPARSITIES = [0.5, 0.9, 0.95, 0.99]


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


# The multiplications of a weight for one image of 8×8, by hand: output positions of a convolution, one for a linear.
MULTIPLICATIONS = {"0.weight": 64, "3.weight": 16, "8.weight": 1}


def data() -> tuple[Tensor, Tensor]:
    """Return images whose class is a colour of its own, and their classes."""
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(16) % 10
    colours = torch.randn(10, 3, 1, 1, generator=generator)
    return colours[y] + 0.5 * torch.randn(16, 3, 8, 8, generator=generator), y


def sgd(model: nn.Module, lr: float = 0.05) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=lr > 0, weight_decay=1e-4)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, after: Callable[[], None] = int) -> None:
    x, y = data()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        after()


def finished(make: Callable[..., Method], **options) -> tuple[nn.Module, Method]:
    """Train a network to the end and finalize it."""
    torch.manual_seed(0)
    model = network()
    optimizer = sgd(model)
    sparsifier = make(model, **options).attach(optimizer)
    train(model, optimizer, STEPS)
    sparsifier.finalize(recalibrate=data()[0])
    return model, sparsifier


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: w.detach() for name, w in model.named_parameters() if w.dim() > 1}


def zeros(tensors: dict[str, Tensor]) -> int:
    return sum(int((w == 0).sum()) for w in tensors.values())


def size(tensors: dict[str, Tensor]) -> int:
    return sum(w.numel() for w in tensors.values())


# (a) The target


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_global_target_is_met_to_the_weight(penalty: str, sparsity: float) -> None:
    model, _ = finished(rvsm.RVSM, penalty=penalty, sparsity=sparsity, steps=STEPS)
    assert zeros(weights(model)) == round(sparsity * size(weights(model)))


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_target_for_each_layer_is_met_to_the_weight(penalty: str, sparsity: float) -> None:
    budget = rvsm.Budget(sparsity=sparsity, steps=STEPS, scope="layer")
    model, _ = finished(rvsm.RVSM, penalty=penalty, budget=budget)
    for name, w in weights(model).items():
        assert zeros({name: w}) == round(sparsity * w.numel())


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("options", [{}, {"scope": "layer"}, {"normalize": True}], ids=str)
def test_magnitude_pruning_meets_the_target_too(options: dict, sparsity: float) -> None:
    model, _ = finished(rvsm.Magnitude, budget=rvsm.Budget(sparsity=sparsity, steps=STEPS, ramp=0.7, **options))
    counted = [weights(model)] if "scope" not in options else [{k: w} for k, w in weights(model).items()]
    for part in counted:
        assert zeros(part) == round(sparsity * size(part))


def multiplied(model: nn.Module, *, only: Callable[[Tensor], Tensor]) -> int:
    return sum(MULTIPLICATIONS[name] * int(only(w).sum()) for name, w in weights(model).items())


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("method", ["rvsm", "magnitude"])
def test_a_target_by_flops_is_met_to_a_tenth_of_a_point(method: str, scope: str, sparsity: float) -> None:
    budget = rvsm.Budget(sparsity=sparsity, steps=STEPS, scope=scope, by="flops", floor=0.001)
    penalty = {"penalty": "l0"} if method == "rvsm" else {}
    model, _ = finished(METHODS[method], **penalty, budget=budget, example_input=data()[0])
    left = multiplied(model, only=lambda w: w != 0) / multiplied(model, only=torch.ones_like)
    assert 1 - left == pytest.approx(sparsity, abs=1e-3)


def test_flops_and_weights_are_different_targets() -> None:
    budget = rvsm.Budget(sparsity=0.9, steps=STEPS, by="flops")
    model, _ = finished(rvsm.RVSM, penalty="l0", budget=budget, example_input=data()[0])
    left = multiplied(model, only=lambda w: w != 0) / multiplied(model, only=torch.ones_like)
    assert abs(zeros(weights(model)) / size(weights(model)) - (1 - left)) > 2e-3


def group_labels(grouping: str, shape: torch.Size) -> Tensor:
    """Give each weight the number of its group, by the words of the documentation."""
    position = torch.meshgrid(*map(torch.arange, shape), indexing="ij")
    key = {
        "element": position,
        "filter": position[:1],
        "channel": position[1:2],
        "row": position[:-1],
        "column": (*position[:-2], position[-1]),
        "block": (position[0] // 4, *position[1:]),
    }[grouping]
    flat = torch.stack([k.flatten() for k in key], dim=1)
    return flat.unique(dim=0, return_inverse=True)[1].view(shape)


@pytest.mark.parametrize("sparsity", [0.5, 0.9])
@pytest.mark.parametrize("grouping", GROUPS)
@pytest.mark.parametrize("options", [{}, {"scope": "layer"}, {"normalize": True}], ids=str)
def test_groups_meet_the_target_to_one_group(options: dict, grouping: str, sparsity: float) -> None:
    budget = rvsm.Budget(sparsity=sparsity, steps=STEPS, **options)
    # The first layer has only three channels: it cannot lose 90 % of them.
    own = {"0.*": {"sparsity": sparsity if grouping != "channel" else 0.5}} if "scope" in options else {}
    model, _ = finished(rvsm.RVSM, penalty="l0", budget=budget, groups=grouping, overrides=own)
    labels = {name: group_labels(grouping, w.shape) for name, w in weights(model).items()}
    for name, w in weights(model).items():
        kept = torch.zeros(int(labels[name].max()) + 1).index_add_(
            0, labels[name].flatten(), (w != 0).float().flatten()
        )
        assert ((kept == 0) | (kept == labels[name].flatten().bincount())).all(), "a group lives or dies as a whole"
    largest = {name: int(label.flatten().bincount().max()) for name, label in labels.items()}
    counted = [weights(model)] if "scope" not in options else [{k: w} for k, w in weights(model).items()]
    for part in counted:
        target = own["0.*"]["sparsity"] if own and "0.weight" in part else sparsity
        assert abs(zeros(part) - target * size(part)) <= max(largest[name] for name in part)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_every_penalty_meets_the_target_with_groups(penalty: str) -> None:
    model, _ = finished(rvsm.RVSM, penalty=penalty, sparsity=0.8, steps=STEPS, groups=rvsm.Block(size=3))
    assert abs(zeros(weights(model)) - 0.8 * size(weights(model))) <= 3


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("penalty", ["l0", "l1"])
def test_normalized_layers_meet_the_target(penalty: str, sparsity: float) -> None:
    budget = rvsm.Budget(sparsity=sparsity, steps=STEPS, normalize=True)
    model, _ = finished(rvsm.RVSM, penalty=penalty, budget=budget)
    assert zeros(weights(model)) == round(sparsity * size(weights(model)))


def test_normalizing_makes_the_scale_of_a_layer_irrelevant() -> None:
    ws = {"small": 1e-3 * torch.randn(40, 40), "large": torch.randn(40, 40)}
    by_normalize = {}
    for normalize in (False, True):
        budget = rvsm.Budget(sparsity=0.5, steps=10, normalize=normalize)
        sparsifier = still(ws, rvsm.RVSM, at=6, penalty="l0", budget=budget)
        assert sparsifier.phase == "hold"  # where thresholds make the zeros, not masks
        assert sparsifier.statistics().sparsity == 0.5
        by_normalize[normalize] = [layer.sparsity for layer in sparsifier.statistics().layers]
    assert by_normalize[False] == pytest.approx([0.995, 0.005], abs=1e-9)
    assert by_normalize[True] == pytest.approx([0.5, 0.5], abs=0.05)


@pytest.mark.parametrize("own", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("pattern", ["0.*", "8.weight"])
@pytest.mark.parametrize("method", ["rvsm", "magnitude"])
def test_a_layer_with_a_sparsity_of_its_own(method: str, pattern: str, own: float) -> None:
    penalty = {"penalty": "l1"} if method == "rvsm" else {}
    overrides = {pattern: {"sparsity": own}}
    model, _ = finished(METHODS[method], **penalty, sparsity=0.85, steps=STEPS, overrides=overrides)
    name = "0.weight" if pattern == "0.*" else pattern
    w = weights(model)[name]
    assert int((w == 0).sum()) == round(own * w.numel())
    assert zeros(weights(model)) == round(0.85 * size(weights(model)))


def test_a_layer_with_a_sparsity_of_its_own_among_targets_for_each_layer() -> None:
    budget = rvsm.Budget(sparsity=0.5, steps=STEPS, scope="layer")
    model, _ = finished(rvsm.RVSM, penalty="l0", budget=budget, overrides={"3.*": {"sparsity": 0.9}})
    expected = {"0.weight": 0.5, "3.weight": 0.9, "8.weight": 0.5}
    for name, w in weights(model).items():
        assert zeros({name: w}) == round(expected[name] * w.numel())


def test_only_one_layer_becomes_sparse_if_only_it_has_a_target() -> None:
    budget = rvsm.Budget(sparsity=0.0, steps=STEPS, scope="layer")
    model, _ = finished(rvsm.RVSM, penalty="l0", budget=budget, overrides={"3.*": {"sparsity": 0.9}})
    assert zeros({"3": weights(model)["3.weight"]}) == round(0.9 * 4608)
    assert zeros({"8": weights(model)["8.weight"]}) == 0


# (b) The phases


def still(ws: dict[str, Tensor], make: Callable[..., Method], at: int = 9, **options) -> Method:
    """Return a method after steps that move no weight, so that what it sets can be counted exactly."""
    pairs = [(name, nn.Parameter(w.clone())) for name, w in ws.items()]
    optimizer = torch.optim.SGD([w for _, w in pairs], lr=0.0)
    if make is rvsm.RVSM:
        options.setdefault("beta", 1.0)
    sparsifier = make(pairs, **options).attach(optimizer)
    for _ in range(at):
        for _, w in pairs:
            w.grad = torch.zeros_like(w)
        optimizer.step()
    return sparsifier


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_ramp_is_a_cubic_and_the_prox_alone_follows_it(penalty: str, scale: float) -> None:
    ws = {"a": scale * torch.randn(30, 30), "b": 2 * scale * torch.randn(40, 10)}
    budget = rvsm.Budget(sparsity=0.9, steps=20, heal=0.0, every=1)
    for step in range(11):
        sparsifier = still(ws, rvsm.RVSM, at=step + 1, penalty=penalty, beta=0.1, budget=budget)
        cubic = 0.9 * (1 - (1 - step / 10) ** 3)
        assert budget.target(step) == pytest.approx(cubic)
        assert sum(layer.zeros for layer in sparsifier.statistics().layers) == round(cubic * 1300)


@pytest.mark.parametrize("penalty", ["l0", "l1"])
def test_the_ramp_is_followed_while_the_weights_move(penalty: str) -> None:
    model = network()
    optimizer = sgd(model)
    budget = rvsm.Budget(sparsity=0.9, steps=40)
    sparsifier = rvsm.RVSM(model, penalty, budget=budget).attach(optimizer)
    reached = []
    train(model, optimizer, 20, after=lambda: reached.append(sparsifier.statistics().sparsity))
    assert reached == pytest.approx([budget.target(step) for step in range(20)], abs=0.1)


def test_between_two_looks_the_threshold_stays() -> None:
    model = network()
    optimizer = sgd(model)
    budget = rvsm.Budget(sparsity=0.9, steps=30, every=4)
    sparsifier = rvsm.RVSM(model, "l0", budget=budget).attach(optimizer)
    lams: list[float | None] = []
    train(model, optimizer, 16, after=lambda: lams.append(sparsifier.statistics().layers[1].lam))
    assert lams[0] is None
    assert len(set(lams[4:8])) == len(set(lams[8:12])) == len(set(lams[12:15])) == 1
    assert 0 < lams[4] < lams[8] < lams[12] < lams[15]


def test_lambda_is_held_in_the_hold() -> None:
    model = network()
    optimizer = sgd(model)
    sparsifier = rvsm.RVSM(model, "l0", sparsity=0.9, steps=40).attach(optimizer)
    seen: list[tuple[str | None, list[float | None]]] = []

    def record() -> None:
        seen.append((sparsifier.phase, [layer.lam for layer in sparsifier.statistics().layers]))

    train(model, optimizer, 40, after=record)
    phases = [phase for phase, _ in seen]
    # The phase after n steps is that of step n, counted from 0.
    assert phases == ["ramp"] * 19 + ["hold"] * 8 + ["heal"] * 13
    assert len({tuple(lams) for _, lams in seen[20:28]}) == 1
    assert len({tuple(lams) for _, lams in seen[:20]}) > 10
    assert {tuple(lams) for _, lams in seen[28:]} == {(None, None, None)}, "nothing is penalised while it heals"


@pytest.mark.parametrize("penalty", ["l0", "l1", "tl1"])
def test_healing_keeps_the_support_and_has_no_pull(penalty: str) -> None:
    model = network()
    optimizer = sgd(model)
    sparsifier = rvsm.RVSM(model, penalty, sparsity=0.9, steps=STEPS).attach(optimizer)
    heals = STEPS - round(0.3 * STEPS)
    train(model, optimizer, heals)
    assert zeros(weights(model)) < 100
    supports, values = [], []

    def record() -> None:
        supports.append({name: w == 0 for name, w in weights(model).items()})
        values.append({name: w.clone() for name, w in weights(model).items()})

    # Far past `steps`: it is still the healing.
    train(model, optimizer, 2 * STEPS, after=record)
    assert sparsifier.phase == "heal"
    assert zeros(weights(model)) == round(0.9 * size(weights(model)))
    for support, value in zip(supports, values, strict=True):
        assert all(torch.equal(support[name], supports[0][name]) for name in support)
        assert any(not torch.equal(value[name], values[0][name]) for name in value) or value is values[0]
    statistics = sparsifier.statistics()
    assert statistics.gap == 0
    assert statistics.coupling == 0
    before = {name: w.clone() for name, w in weights(model).items()}
    with sparsifier.sparse_weights():
        assert all(torch.equal(w, before[name]) for name, w in weights(model).items())

    optimizer.state.clear()
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
    for w in model.parameters():
        w.grad = torch.zeros_like(w)
    optimizer.step()
    assert all(torch.equal(w, before[name]) for name, w in weights(model).items())

    # In the healing nothing is left to change: no warning about batch norm.
    sparsifier.finalize()
    assert all(torch.equal(w, before[name]) for name, w in weights(model).items())


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("steps", [1, 7, 15])
def test_finalizing_early_meets_the_target_and_warns(penalty: str, steps: int) -> None:
    model = network()
    optimizer = sgd(model)
    sparsifier = rvsm.RVSM(model, penalty, sparsity=0.9, steps=STEPS).attach(optimizer)
    train(model, optimizer, steps)
    with pytest.warns(UserWarning, match=rf"finalized at step {steps} of {STEPS}, in the phase"):
        sparsifier.finalize(recalibrate=data()[0])
    assert zeros(weights(model)) == round(0.9 * size(weights(model)))


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("ramp", [0.0, 0.5, 1.0])
def test_without_healing_finalize_gives_the_exact_count(penalty: str, ramp: float) -> None:
    budget = rvsm.Budget(sparsity=0.9, steps=STEPS, ramp=ramp, heal=0.0)
    model, sparsifier = finished(rvsm.RVSM, penalty=penalty, budget=budget, pull=6.0)
    assert sparsifier.phase == "hold"
    assert zeros(weights(model)) == round(0.9 * size(weights(model)))


def test_without_a_ramp_the_first_step_has_the_whole_sparsity() -> None:
    budget = rvsm.Budget(sparsity=0.9, steps=10, ramp=0.0)
    sparsifier = still({"w": torch.randn(50, 20)}, rvsm.RVSM, at=1, penalty="l0", budget=budget)
    assert sparsifier.phase == "hold"
    assert sparsifier.statistics().layers[0].zeros == 900


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_very_short_trainings_meet_the_target(steps: int) -> None:
    ws = {"a": torch.randn(30, 10), "b": torch.randn(20, 10)}
    for heal in (0.0, 0.3, 0.5):
        budget = rvsm.Budget(sparsity=0.9, steps=steps, heal=heal)
        sparsifier = still(ws, rvsm.RVSM, at=steps, penalty="l0", budget=budget)
        sparsifier.finalize()
        assert sum(layer.zeros for layer in sparsifier.statistics().layers) == 450


# (c) The floor


@pytest.mark.parametrize("floor", [0.0, 0.005, 0.1, 0.25])
@pytest.mark.parametrize("method", ["rvsm", "magnitude"])
def test_no_layer_loses_more_than_the_floor_allows(method: str, floor: float) -> None:
    # By magnitude alone the first layer would go first, as a whole.
    ws = {"small": 1e-6 * torch.randn(20, 20), "large": torch.randn(30, 20)}
    penalty = {"penalty": "l0"} if method == "rvsm" else {}
    budget = rvsm.Budget(sparsity=0.7, steps=10, floor=floor)
    sparsifier = still(ws, METHODS[method], at=10, **penalty, budget=budget)
    sparsifier.finalize()
    small, large = sparsifier.statistics().layers
    assert small.weights - small.zeros == max(1, ceil(floor * 400))
    assert small.zeros + large.zeros == 700


def infeasible(ws: dict[str, Tensor], budget: rvsm.Budget, **options) -> float:
    """Return the largest feasible sparsity that the error names."""
    with pytest.raises(ValueError, match="is not feasible") as error:
        still(ws, rvsm.RVSM, at=0, penalty="l0", budget=budget, **options)
    return float(re.findall(r"(?:to|largest is) ([\d.]+);", str(error.value))[0])


@pytest.mark.parametrize("floor", [0.0, 0.01, 0.1, 1 / 3])
@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("groups", ["element", "filter", "block"])
def test_the_largest_feasible_target_is_named_and_works(groups: str, scope: str, floor: float) -> None:
    ws = {"a": torch.randn(30, 7), "b": torch.randn(10, 40)}
    options = {"steps": 10, "scope": scope, "floor": floor}
    largest = infeasible(ws, rvsm.Budget(sparsity=0.9999, **options), groups=groups)
    sparsifier = still(
        ws, rvsm.RVSM, at=10, penalty="l0", budget=rvsm.Budget(sparsity=largest, **options), groups=groups
    )
    sparsifier.finalize()
    sizes = {"element": (1, 1), "filter": (7, 40), "block": (4, 4)}[groups]
    if scope == "global":
        achieved, group = sparsifier.statistics().sparsity, max(sizes) / 610
    else:
        achieved, group = (
            min(row.sparsity for row in sparsifier.statistics().layers),
            max(sizes[0] / 210, sizes[1] / 400),
        )
    assert achieved == pytest.approx(largest, abs=group / 2 + 1e-5)
    for layer in sparsifier.held:
        alive = layer.magnitudes(layer.w.detach()) != 0
        assert int(alive.sum()) >= max(1, ceil(floor * alive.numel()))


def test_the_largest_feasible_target_by_flops_is_named_and_works() -> None:
    options = {"steps": STEPS, "by": "flops", "floor": 0.05}
    model = network()
    with pytest.raises(ValueError, match="is not feasible") as error:
        rvsm.RVSM(model, "l0", budget=rvsm.Budget(0.99, **options), example_input=data()[0]).attach(sgd(model))
    largest = float(re.findall(r"to ([\d.]+);", str(error.value))[0])
    model, _ = finished(rvsm.RVSM, penalty="l0", budget=rvsm.Budget(largest, **options), example_input=data()[0])
    kept = {name: int((w != 0).sum()) for name, w in weights(model).items()}
    assert kept == {"0.weight": ceil(0.05 * 432), "3.weight": ceil(0.05 * 4608), "8.weight": ceil(0.05 * 320)}


@pytest.mark.parametrize("sparsity", [0.1, 0.95])
def test_overrides_bound_the_target_from_both_sides(sparsity: float) -> None:
    ws = {"a": torch.randn(10, 10), "b": torch.randn(10, 30)}
    options = {"penalty": "l0", "overrides": {"a": {"sparsity": 0.8}}}
    with pytest.raises(ValueError, match=r"it can be from 0\.2 to 0\.9425;"):
        still(ws, rvsm.RVSM, budget=rvsm.Budget(sparsity, 10, floor=0.01), **options)


def test_an_infeasible_override_names_its_layer() -> None:
    ws = {"a": torch.randn(10, 10), "b": torch.randn(10, 30)}
    with pytest.raises(ValueError, match=r"sparsity 0\.999 of 'a' is not feasible: .* the largest is 0\.99;"):
        still(ws, rvsm.RVSM, penalty="l0", budget=rvsm.Budget(0.5, 10), overrides={"a": {"sparsity": 0.999}})


# (d) Ties


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("options", [{}, {"scope": "layer"}, {"normalize": True}], ids=str)
def test_equal_weights_are_told_apart_by_their_place_alone(penalty: str, options: dict) -> None:
    ws = {"a": torch.full((20, 20), 0.1), "b": torch.full((10, 60), -0.1)}
    for heal in (0.0, 0.3):
        budget = rvsm.Budget(sparsity=0.7, steps=10, heal=heal, **options)
        sparsifier = still(ws, rvsm.RVSM, at=10, penalty=penalty, budget=budget)
        sparsifier.finalize()
        assert sum(layer.zeros for layer in sparsifier.statistics().layers) == 700


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("heal", [0.0, 0.3])
def test_more_zeros_than_the_target_stay(penalty: str, heal: float) -> None:
    ws = {"a": torch.randn(20, 20), "b": torch.randn(10, 60)}
    for w in ws.values():
        w.flatten()[torch.randperm(w.numel())[: int(0.8 * w.numel())]] = 0
    budget = rvsm.Budget(sparsity=0.5, steps=10, heal=heal)
    sparsifier = still(ws, rvsm.RVSM, at=10, penalty=penalty, budget=budget)
    assert sparsifier.statistics().sparsity == 0.8
    sparsifier.finalize()
    assert sparsifier.statistics().sparsity == 0.8


def test_all_zeros_written_by_finalize_stay_zero_even_beyond_the_target() -> None:
    w = nn.Parameter(torch.cat([torch.zeros(80), torch.randn(20)]).view(10, 10))
    optimizer = torch.optim.SGD([w], lr=0.1)
    sparsifier = rvsm.RVSM([("w", w)], "l0", beta=1.0, sparsity=0.5, steps=1).attach(optimizer)
    w.grad = torch.zeros_like(w)
    optimizer.step()
    sparsifier.finalize()
    (w + 1).square().sum().backward()
    optimizer.step()
    assert int((w == 0).sum()) == 80


@pytest.mark.parametrize("penalty", PENALTIES)
def test_mostly_zero_weights_reach_a_target_beyond_their_zeros(penalty: str) -> None:
    ws = {"a": torch.randn(20, 20), "b": torch.zeros(10, 60)}
    ws["b"][0, :5] = 1e-30  # far below the square root of the smallest number
    sparsifier = still(ws, rvsm.RVSM, at=10, penalty=penalty, budget=rvsm.Budget(sparsity=0.9, steps=10, floor=0.0))
    sparsifier.finalize()
    assert sum(layer.zeros for layer in sparsifier.statistics().layers) == 900


# (e) The two outputs


@pytest.mark.parametrize("penalty", PENALTIES)
def test_masked_is_w_on_the_support_of_u(penalty: str) -> None:
    model = network()
    optimizer = sgd(model)
    sparsifier = rvsm.RVSM(model, penalty, sparsity=0.9, steps=40).attach(optimizer)
    train(model, optimizer, 24)
    ws = {name: w.clone() for name, w in weights(model).items()}
    seen = {}
    for output in ("u", "masked"):
        with sparsifier.sparse_weights(output=output):
            seen[output] = {name: w.clone() for name, w in weights(model).items()}
    assert zeros(seen["u"]) > 0.8 * size(ws)
    for name, w in ws.items():
        u, masked = seen["u"][name], seen["masked"][name]
        assert torch.equal(masked, torch.where(u != 0, w, 0.0))
        if penalty == "l1":
            lam, beta = next((row.lam, row.beta) for row in sparsifier.statistics().layers if row.name == name)
            shrunk = (w.abs() - lam / beta)[u != 0]
            torch.testing.assert_close(u[u != 0].abs(), shrunk)
    with (
        pytest.raises(ValueError, match="unknown output 'w'; choose from u, masked"),
        sparsifier.sparse_weights(output="w"),
    ):
        pass


@pytest.mark.parametrize("output", ["u", "masked"])
def test_finalize_writes_the_output_with_the_exact_count(output: str) -> None:
    model = network()
    optimizer = sgd(model)
    sparsifier = rvsm.RVSM(model, "l1", budget=rvsm.Budget(0.9, STEPS, heal=0.0), pull=6.0).attach(optimizer)
    train(model, optimizer, STEPS)
    ws = {name: w.clone() for name, w in weights(model).items()}
    sparsifier.finalize(output=output, recalibrate=data()[0])
    assert zeros(weights(model)) == round(0.9 * size(ws))
    for name, w in weights(model).items():
        kept = w != 0
        assert torch.equal(w[kept], ws[name][kept]) == (output == "masked")
        assert ws[name][kept].abs().min() >= ws[name][~kept].abs().max()


def test_finalizing_batch_norm_without_new_statistics_warns() -> None:
    model = network()
    optimizer = sgd(model)
    sparsifier = rvsm.RVSM(model, "l0", budget=rvsm.Budget(0.9, STEPS, heal=0.0), pull=6.0).attach(optimizer)
    train(model, optimizer, STEPS)
    with pytest.warns(UserWarning, match="batch-norm statistics still belong to the dense weights"):
        sparsifier.finalize()
