"""Measurements of the runtime: what is measured, not how fast it is."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import rvsm
from rvsm.timing.measure import compared

IMAGE = torch.zeros(1, 1, 8, 8)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


@pytest.fixture(scope="module")
def profile() -> rvsm.Profile:
    torch.manual_seed(0)
    return rvsm.profile(network(), IMAGE, batch=32, threads=1, exclude=["7.weight"])


def test_each_layer_has_a_curve_from_no_weights_to_all(profile: rvsm.Profile) -> None:
    assert {name: times.shape for name, times in profile.layers.items()} == {
        "0.weight": (16, 1, 3, 3),
        "3.weight": (32, 16, 3, 3),
    }
    for times in profile.layers.values():
        assert times.groups == "element"
        assert (times.seconds.x[0], times.seconds.x[-1]) == (0.0, 1.0)
        assert len(times.seconds.x) >= 6
        assert (np.diff(times.seconds.y) > 0).all()
    assert (profile.batch, profile.threads, profile.inputs) == (32, 1, ((1, 8, 8),))
    assert 0 < profile.fixed < profile.dense
    assert profile.speedup({"3.weight": 0.05}) > 1
    assert "no network of this kind is more than" in str(profile)


def test_the_model_and_the_random_state_stay_as_they_are() -> None:
    model = network().train()
    model[0].weight.data[0] = 0
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    rvsm.profile(model, IMAGE, groups=rvsm.Block(size=2), batch=1, threads=1)
    assert all(torch.equal(model.state_dict()[name], w) for name, w in before.items())
    assert torch.equal(state, torch.get_rng_state())
    assert model.training


@pytest.mark.parametrize("groups", ["filter", "coupled"])
def test_filters_and_channels_can_be_measured(groups: str) -> None:
    found = rvsm.profile(network(), IMAGE, groups=groups, exclude=["7.weight"], batch=1, threads=1)
    assert set(found.layers) == {"0.weight", "3.weight"}


def test_a_sparse_network_is_compared_with_itself_without_zeros() -> None:
    model = nn.Sequential(nn.Conv2d(8, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()).eval()
    for layer in (model[0], model[2]):
        layer.weight.data *= torch.rand_like(layer.weight) < 0.03
    dense, sparse = compared(model, torch.zeros(1, 8, 12, 12), batch=16, threads=1)
    assert dense > sparse > 0  # about ten times: no busy machine makes it less


def test_what_stands_in_the_way_is_named() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x.flatten(1), 2 * self.inner.weight)

    with pytest.raises(ValueError, match=r"does not use 'inner\.weight' as the weights of one of its layers"):
        rvsm.profile(Scaled(), IMAGE, batch=1, threads=1)
    with pytest.raises(ValueError, match="batch must be at least 1 but is 0"):
        rvsm.profile(network(), IMAGE, batch=0)
    with pytest.raises(TypeError, match=r"batch must be an integer but is 2\.0"):
        rvsm.profile(network(), IMAGE, batch=2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threads must be at least 1 but is 0"):
        rvsm.profile(network(), IMAGE, threads=0)
