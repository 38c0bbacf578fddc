"""Tiny data for the trainers of other libraries; nothing is downloaded."""

import pytest
import torch
from torch.utils.data import TensorDataset


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def points() -> TensorDataset:
    """Return 64 points in 20 dimensions, in two classes."""
    x = torch.randn(64, 20, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, 0] > 0).long())
