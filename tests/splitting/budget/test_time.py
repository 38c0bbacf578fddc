"""Targets in time: the predicted time of the network is the dense network's divided by a speed-up."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

import rvsm
from rvsm.runtime.kernels.jit import machine
from rvsm.splitting import METHODS
from rvsm.splitting.layers import Layer
from rvsm.timing import Curve, LayerTimes, Profile

SHAPES = {"0.weight": (16, 3, 3, 3), "3.weight": (32, 16, 3, 3), "8.weight": (10, 32)}
# Seconds of a dense layer, and of one without weights; down to half of the weights, zeros do not help at all.
SECONDS = {"0.weight": (4e-3, 2e-4), "3.weight": (5e-3, 1e-4), "8.weight": (1e-4, 1e-5)}


def made(
    shapes: dict[str, tuple[int, ...]] = SHAPES, groups: str = "element", inputs: tuple[int, ...] = (3, 8, 8)
) -> Profile:
    layers = {}
    for name, shape in shapes.items():
        dense, empty = SECONDS.get(name, (1e-3, 1e-5))
        layers[name] = LayerTimes(shape, groups, Curve((0.0, 0.5, 1.0), (empty, dense * (1 - 1e-6), dense)))
    return Profile(machine().name, 64, 2, (inputs,), 5e-4, layers)


def caching(profile: Profile) -> Profile:
    """Return the profile of a machine on which sparse networks are faster than the sum of their layers."""
    whole = profile.dense_parts
    return replace(profile, calls=Curve((0.0, 0.3 * whole, 0.6 * whole, whole), (0.0, 0.1 * whole, 0.5 * whole, whole)))


def predicted(profile: Profile, weights: dict[str, Tensor]) -> float:
    """Return the speed-up, computed from the definition."""
    seconds = profile.fixed
    for name, w in weights.items():
        times, density = profile.layers[name], int((w != 0).sum()) / w.numel()
        empty, half, dense = times.seconds.y
        seconds += half + (dense - half) * (2 * density - 1) if density > 0.5 else empty + (half - empty) * 2 * density
    return profile.dense / (seconds if profile.calls is None else float(profile.calls(seconds)))


@pytest.mark.parametrize("method", ["rvsm", "magnitude", "acdc"])
@pytest.mark.parametrize(("scope", "speedup"), [("global", 1.3), ("global", 4), ("layer", 4), ("global", 8)])
def test_the_predicted_time_is_met(training: Any, method: str, scope: str, speedup: float) -> None:
    profile = made()
    budget = rvsm.Budget(speedup=speedup, steps=training.steps, scope=scope, profile=profile)
    sparsifier = training.finish(METHODS[method], **({"penalty": "l0"} if method == "rvsm" else {}), budget=budget)
    assert predicted(profile, training.weights) == pytest.approx(speedup, rel=5e-3)
    assert sparsifier.statistics().speedup == pytest.approx(predicted(profile, training.weights))
    assert f"{speedup:.2f} × as fast as dense" in str(sparsifier.statistics())
    assert f"speedup={speedup:g}" in repr(sparsifier)


@pytest.mark.parametrize("speedup", [1.3, 4, 12])
def test_it_is_met_if_a_call_is_not_the_sum_of_its_parts(training: Any, speedup: float) -> None:
    profile = caching(made())
    sparsifier = training.finish(
        rvsm.RVSM, penalty="l0", budget=rvsm.Budget(speedup=speedup, steps=training.steps, profile=profile)
    )
    assert predicted(profile, training.weights) == pytest.approx(speedup, rel=5e-3)
    assert sparsifier.statistics().speedup == pytest.approx(predicted(profile, training.weights))


@pytest.mark.parametrize("groups", ["block", "filter", "coupled"])
def test_groups_meet_it_to_one_group(training: Any, groups: str) -> None:
    described = {"block": "block of 4"}.get(groups, groups)
    shapes = SHAPES if groups == "block" else {name: s for name, s in SHAPES.items() if name != "8.weight"}
    profile = made(shapes, described)
    budget = rvsm.Budget(speedup=3, steps=training.steps, profile=profile)
    options = {} if groups == "block" else {"exclude": ["8.weight"]}
    training.finish(rvsm.Magnitude, budget=budget, groups=groups, example_input=training.images, **options)
    kept = {name: w for name, w in training.weights.items() if name in shapes}
    largest = {"block": 4, "filter": 27, "coupled": 27}[groups]  # weights of the dearest group, in a layer of 432
    step = largest / 432 * 2 * 4e-3 / (profile.dense / 3)
    assert predicted(profile, kept) == pytest.approx(3, rel=step)


def test_thresholds_are_proportional_to_the_root_of_what_a_weight_costs() -> None:
    generator = torch.Generator().manual_seed(0)
    layers = [Layer(name, torch.randn(shape, generator=generator)) for name, shape in SHAPES.items()]
    profile = made()
    budget = rvsm.Budget(speedup=2, steps=10, profile=profile, floor=0)
    thresholds = budget.cutoffs(layers, budget.goal)
    costs = [(dense - empty) / (0.5 * torch.Size(SHAPES[name]).numel()) for name, (dense, empty) in SECONDS.items()]
    scaled = [t / c**0.5 for t, c in zip(thresholds, costs, strict=True)]
    assert scaled[:2] == pytest.approx([scaled[0]] * 2, rel=1e-3)
    assert thresholds[0] > 2.5 * thresholds[1]  # the first is dearer


def test_layers_that_are_no_faster_with_a_few_zeros_get_them_evenly_along_the_ramp() -> None:
    generator = torch.Generator().manual_seed(0)
    layers = [Layer(name, torch.rand(shape, generator=generator)) for name, shape in SHAPES.items()]
    budget = rvsm.Budget(speedup=4, steps=100, profile=made())
    total = sum(layer.parameter.numel() for layer in layers)

    def zeros(step: int) -> float:
        return sum(int(mask.sum()) for mask in budget.zeros(layers, budget.target(step)).values()) / total

    course = [zeros(step) for step in (0, 1, 5, 20, 50)]
    assert course[0] == 0
    assert 0 < course[1] < 0.15, course  # a target of 4 % of the time needs half of all weights without the ramp's line
    assert course == sorted(course)


def test_a_layer_with_its_own_sparsity_keeps_it_and_the_others_make_up_the_rest(training: Any) -> None:
    profile = made()
    for scope in ("global", "layer"):
        fresh = type(training)()
        budget = rvsm.Budget(speedup=3, steps=fresh.steps, profile=profile, scope=scope)
        fresh.finish(rvsm.Magnitude, budget=budget, overrides={"0.weight": {"sparsity": 0.75}})
        assert int((fresh.weights["0.weight"] == 0).sum()) == 324
        assert predicted(profile, fresh.weights) == pytest.approx(3, rel=5e-3)


@pytest.mark.parametrize("profile", [made(), caching(made())], ids=["sum", "calls"])
def test_the_largest_feasible_speedup_is_named_and_works(training: Any, profile: Profile) -> None:
    def finish(speedup: float) -> None:
        budget = rvsm.Budget(speedup=speedup, steps=training.steps, profile=profile, floor=0.05)
        training.finish(rvsm.RVSM, penalty="l0", budget=budget)

    with pytest.raises(ValueError, match=r"speedup 50 is not feasible: with floor=0\.05.* between 1\.0 and") as error:
        finish(50)
    largest = float(re.findall(r"and ([\d.]+);", str(error.value))[0])
    finish(largest)
    assert predicted(profile, training.weights) == pytest.approx(largest, rel=5e-3)


def test_the_largest_feasible_speedup_also_holds_with_default_floors(training: Any) -> None:
    def finish(speedup: float) -> None:
        budget = rvsm.Budget(speedup=speedup, steps=training.steps, profile=made())
        training.finish(rvsm.RVSM, penalty="l0", budget=budget)

    with pytest.raises(ValueError, match=r"speedup 50 is not feasible: with the default floor") as error:
        finish(50)
    largest = float(re.findall(r"and ([\d.]+);", str(error.value))[0])
    finish(largest)
    assert predicted(made(), training.weights) == pytest.approx(largest, rel=5e-3)


def test_a_fraction_of_the_time_that_is_not_feasible_is_called_by_its_name(training: Any) -> None:
    budget = rvsm.Budget(0.999, training.steps, by="time", profile=made())
    with pytest.raises(ValueError, match=r"saving 0\.999 of the time is not feasible: .* between 0 and 0\.9"):
        training.finish(rvsm.Magnitude, budget=budget)


def test_layers_that_all_have_their_own_sparsity_leave_nothing_to_a_target(training: Any) -> None:
    budget = rvsm.Budget(speedup=4, steps=training.steps, profile=made())
    own = {"*": {"sparsity": 0.6}}
    with pytest.raises(ValueError, match=r"every layer has a sparsity of its own, and together they result in 1\.\d+;"):
        training.finish(rvsm.Magnitude, budget=budget, overrides=own)


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"speedup": 1}, ValueError, "speedup must be > 1 but is 1"),
        ({"speedup": 0.2}, ValueError, "how many times faster than the dense network"),
        ({"speedup": float("nan")}, ValueError, "speedup must be > 1 but is nan"),
        ({"speedup": float("inf")}, ValueError, "speedup must be finite but is inf"),
        ({"speedup": 5, "profile": 3}, TypeError, "profile must be a Profile or the path of its file but is 3"),
        ({"speedup": "fast"}, TypeError, "speedup must be a number > 1, such as 5, but is 'fast'"),
        ({"speedup": 5, "sparsity": 0.9}, ValueError, "both are given"),
        ({}, ValueError, "needs sparsity=, such as 0.9, or speedup=, such as 5, but neither is given"),
        ({"speedup": 5, "by": "flops"}, ValueError, "speedup= is a target by='time', not by='flops'"),
        ({"sparsity": 0.9, "profile": made()}, ValueError, "profile= belongs to a target by='time'"),
        ({"speedup": 5, "profile": "nowhere.json"}, ValueError, "nowhere.json does not exist"),
    ],
)
def test_a_wrong_target_is_a_sentence(options: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=re.escape(sentence)):
        rvsm.Budget(steps=10, **options)


def test_without_a_profile_there_must_be_something_to_measure(training: Any) -> None:
    budget = rvsm.Budget(speedup=2, steps=10)
    with pytest.raises(ValueError, match=r"a budget by time needs profile=.*or the module and example_input="):
        rvsm.Magnitude(training.model, budget=budget)
    pairs = list(training.model.named_parameters())
    with pytest.raises(ValueError, match="a budget by time needs"):
        rvsm.Magnitude(pairs, budget=budget, example_input=training.images)
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        with pytest.raises(ValueError, match="several processes would measure different times; measure once"):
            rvsm.Magnitude(training.model, budget=budget, example_input=training.images)
    finally:
        dist.destroy_process_group()


def test_a_profile_of_another_network_is_refused(training: Any) -> None:
    def build(profile: Profile, **options: Any) -> None:
        rvsm.Magnitude(training.model, budget=rvsm.Budget(speedup=2, steps=10, profile=profile), **options)

    with pytest.raises(ValueError, match=r"the profile is of another network: it has no times for '3\.weight'"):
        build(made({"0.weight": SHAPES["0.weight"]}))
    with pytest.raises(ValueError, match=r"'0\.weight' has the shape \[8, 3, 3, 3\] there but \[16, 3, 3, 3\] here"):
        build(made({**SHAPES, "0.weight": (8, 3, 3, 3)}))
    with pytest.raises(ValueError, match="its input is 3×9×9 there but 3×8×8 here"):
        build(made(inputs=(3, 9, 9)), example_input=training.images)
    with pytest.raises(ValueError, match=r"measured with zeros by element in '0\.weight', but here they are by block"):
        build(made(), groups="block")


def test_a_profile_of_another_kind_of_machine_is_said(training: Any) -> None:
    other = Profile("cortex-a76, 128-bit vectors", 1, 4, ((3, 8, 8),), 1e-3, made().layers)
    with pytest.warns(UserWarning, match="of a machine of the type 'cortex-a76, 128-bit vectors', and this one is"):
        rvsm.Magnitude(training.model, budget=rvsm.Budget(speedup=2, steps=10, profile=other))


def test_layers_in_the_way_of_the_runtime_are_named(training: Any) -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cumprod(x, 1)

    model = nn.Sequential(nn.Conv2d(3, 4, 3), Odd(), nn.Flatten(), nn.Linear(144, 10))
    with pytest.raises(ValueError, match=r"cannot be predicted: the runtime needs PyTorch for aten\.cumprod \(1\)"):
        rvsm.Magnitude(model, budget=rvsm.Budget(speedup=2, steps=10), example_input=training.images)


def test_a_training_measures_and_its_state_brings_the_times_along(training: Any, tmp_path: Path) -> None:
    """One measurement serves all of this: it is the only one here that takes time."""
    state = torch.get_rng_state()
    first = rvsm.RVSM(
        training.model, "l0", budget=rvsm.Budget(speedup=1.2, steps=24), example_input=training.images
    ).attach(training.optimizer)
    assert torch.equal(state, torch.get_rng_state())
    profile = first.budget.times
    assert {name: times.shape for name, times in profile.layers.items()} == SHAPES
    assert profile.batch == 64
    assert profile.machine == machine().name
    training.run(14)
    saved = {"model": training.model.state_dict(), "method": first.state_dict()}
    saved = {key: {k: v.clone() if torch.is_tensor(v) else v for k, v in part.items()} for key, part in saved.items()}
    moments = json.loads(json.dumps({"profile": saved["method"]["profile"]}))
    training.run(10)
    first.finalize(recalibrate=training.images)
    assert first.statistics().speedup == pytest.approx(1.2, rel=2e-2)

    def resumed(given: Profile | None) -> rvsm.RVSM:
        fresh = type(training)()
        budget = rvsm.Budget(speedup=1.2, steps=24, profile=given)
        method = rvsm.RVSM(fresh.model, "l0", budget=budget).attach(fresh.optimizer)
        method.load_state_dict({**saved["method"], **moments})
        return method

    profile.save(tmp_path / "profile.json")
    assert resumed(Profile.load(tmp_path / "profile.json")).budget.times == profile
    with pytest.raises(ValueError, match="saved with a different profile"):
        resumed(made())
    moments["profile"] = "{}"
    with pytest.raises(ValueError, match="the state's profile is missing or damaged"):
        resumed(profile)


def test_a_measured_profile_gives_way_to_that_of_a_state(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = made()
    monkeypatch.setattr("rvsm.splitting.profiling.measured", lambda *_, **__: other)
    budget = rvsm.Budget(speedup=2, steps=10)
    build: Callable[[], Any] = lambda: rvsm.Magnitude(training.model, budget=budget, example_input=training.images)  # noqa: E731
    first = build()
    first.attach(training.optimizer)
    saved = first.state_dict()
    first.detach()
    other = Profile(other.machine, 64, 2, other.inputs, 1e-3, other.layers)
    second = build()
    assert second.budget.times.fixed == 1e-3
    second.load_state_dict(saved)
    assert second.budget.times == first.budget.times
