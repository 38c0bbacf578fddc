"""Looking at the sparse network draws no random number of the training."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

import rvsm


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=0.3), nn.ReLU(), nn.Dropout(0.5))


class Noisy(Dataset):
    """Draws from all three global generators, as augmentations do."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return index + torch.randn(3, 6, 6) + random.random() + float(np.random.rand()), index


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())


def own(seed: int = 9) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


LOADERS: dict[str, Callable[[], DataLoader]] = {
    "plain": lambda: DataLoader(Noisy(), batch_size=8),
    "shuffled": lambda: DataLoader(Noisy(), batch_size=8, shuffle=True),
    "own-generator": lambda: DataLoader(Noisy(), batch_size=8, shuffle=True, generator=own()),
    "sampler": lambda: DataLoader(Noisy(), batch_size=8, sampler=RandomSampler(Noisy(), generator=own())),
    "batch-sampler": lambda: DataLoader(
        Noisy(), batch_sampler=BatchSampler(RandomSampler(Noisy(), generator=own()), 8, False)
    ),
}


def order(loader: DataLoader) -> list[int]:
    """Return the order in which a loader would deliver its data next, and draw from it."""
    return [int(i) for _, y in loader for i in y]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("through", ["recalibrate", "sparse_weights", "finalize"])
def test_no_random_number_of_the_training_is_drawn(loader: str, through: str) -> None:
    model, used, unused = network(), LOADERS[loader](), LOADERS[loader]()
    sparsifier = rvsm.RVSM(model, rvsm.L0(lam=1e-3), beta=1.0).attach(torch.optim.SGD(model.parameters(), lr=0.1))
    random.seed(1)
    np.random.seed(1)
    before = random_states()
    if through == "recalibrate":
        rvsm.recalibrate(model, used)
    elif through == "finalize":
        sparsifier.finalize(recalibrate=used)
    else:
        with sparsifier.sparse_weights(recalibrate=used):
            assert random_states() == before
    assert random_states() == before

    torch.manual_seed(2)
    expected = order(unused)
    torch.manual_seed(2)
    assert order(used) == expected


@pytest.mark.parametrize("recalibrated", [True, False])
def test_evaluating_on_a_shuffled_loader_draws_no_random_number_of_the_training(recalibrated: bool) -> None:
    model, loader = network(), LOADERS["shuffled"]()
    sparsifier = rvsm.RVSM(model, rvsm.L0(lam=1e-3), beta=1.0).attach(torch.optim.SGD(model.parameters(), lr=0.1))
    before = random_states()
    with sparsifier.sparse_weights(recalibrate=loader if recalibrated else None):
        assert sorted(order(loader)) == list(range(24))
        assert random_states() != before
    assert random_states() == before


def test_random_states_come_back_after_a_failure_too() -> None:
    def failing() -> Iterator[Tensor]:
        yield torch.randn(4, 3, 6, 6) + random.random()
        raise OSError("the disk is gone")

    model = network()
    modes, before = [m.training for m in model], random_states()
    with pytest.raises(OSError, match="the disk is gone"):
        rvsm.recalibrate(model, failing())
    assert random_states() == before
    assert [m.training for m in model] == modes
    assert model[1].momentum == 0.3
