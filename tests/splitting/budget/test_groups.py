"""Groups of weights live or die as a whole, and the target is met to one of them."""

from typing import Any

import pytest
import torch
from torch import Tensor

import rvsm
from rvsm.groups import GROUPS
from rvsm.metrics import zeros
from rvsm.penalties import PENALTIES


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


@pytest.mark.parametrize("grouping", [name for name in GROUPS if name != "coupled"])  # which spans layers
@pytest.mark.parametrize(
    ("options", "sparsity"), [({}, 0.5), ({}, 0.9), ({"scope": "layer"}, 0.9), ({"normalize": True}, 0.9)], ids=str
)
def test_groups_meet_the_target_to_one_group(training: Any, options: dict, sparsity: float, grouping: str) -> None:
    # The first layer has only three channels: it cannot lose 90 % of them.
    own = {"0.*": {"sparsity": sparsity if grouping != "channel" else 0.5}} if "scope" in options else {}
    budget = rvsm.Budget(sparsity, training.steps, **options)
    every = {"*": {"groups": grouping}}  # the layers at the ends, too
    training.finish(rvsm.RVSM, penalty="l0", budget=budget, overrides={**own, **every})
    weights = training.weights
    largest = {}
    for name, w in weights.items():
        labels = group_labels(grouping, w.shape).flatten()
        sizes = labels.bincount()
        kept = torch.zeros(len(sizes)).index_add_(0, labels, (w != 0).float().flatten())
        assert ((kept == 0) | (kept == sizes)).all(), "a group lives or dies as a whole"
        largest[name] = int(sizes.max())
    if "scope" in options:
        for name, w in weights.items():
            target = own["0.*"]["sparsity"] if name == "0.weight" else sparsity
            assert abs(zeros(w) - target * w.numel()) <= largest[name]
    else:
        assert abs(training.zeros - sparsity * training.size) <= max(largest.values())


@pytest.mark.parametrize("penalty", PENALTIES)
def test_every_penalty_meets_the_target_with_groups(training: Any, penalty: str) -> None:
    training.finish(rvsm.RVSM, penalty=penalty, sparsity=0.8, steps=training.steps, groups=rvsm.Block(size=3))
    assert abs(training.zeros - 0.8 * training.size) <= 3
