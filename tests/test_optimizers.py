import pytest
import torch
from torch import nn

from rvsm.optimizers import OPTIMIZERS, SGD, AdamW


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_builds_and_trains(name: str) -> None:
    options = OPTIMIZERS[name](lr=0.01)
    assert options.lr == 0.01
    w = nn.Parameter(torch.ones(5))
    optimizer = options.build([w])
    for _ in range(600):
        optimizer.zero_grad()
        (w - 3).square().sum().backward()
        optimizer.step()
    assert torch.allclose(w, torch.full((5,), 3.0), atol=0.1)


def test_sgd_is_torchs_with_all_options() -> None:
    group = SGD(lr=0.3, momentum=0.8, nesterov=False, weight_decay=0.2).build([nn.Parameter(torch.ones(1))])
    assert isinstance(group, torch.optim.SGD)
    found = group.param_groups[0]
    assert [found[k] for k in ("lr", "momentum", "nesterov", "weight_decay")] == [0.3, 0.8, False, 0.2]


def test_adamw_is_torchs_with_all_options() -> None:
    group = AdamW(lr=0.3, betas=(0.5, 0.6), weight_decay=0.2).build([nn.Parameter(torch.ones(1))])
    assert isinstance(group, torch.optim.AdamW)
    assert [group.param_groups[0][k] for k in ("lr", "betas", "weight_decay")] == [0.3, (0.5, 0.6), 0.2]


def test_nesterov_by_default() -> None:
    assert SGD().nesterov
    assert SGD().momentum > 0


def test_options_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SGD().lr = 3  # type: ignore[misc]
