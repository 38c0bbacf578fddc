"""What ranks agree on without shards: sums, choices, and statistics of batch norm."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import rvsm
from rvsm.splitting.magnitudes import Magnitudes, survey
from rvsm.splitting.ranks import Ranks
from rvsm.splitting.selection import candidates, cutoffs, removals, smallest, together
from splitting.sharded.comparing import raises
from splitting.sharded.models import step
from splitting.sharded.runs import on


@contextmanager
def without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@on("four")
@without_warnings()
def the_sums_of_ranks_are_exact_and_counted() -> None:
    ranks, rank = Ranks(dist.group.WORLD), dist.get_rank()
    assert Ranks.of(dist.group.WORLD) is Ranks.of(dist.group.WORLD)
    assert (ranks.size, ranks.rank) == (4, rank)
    numbers = [torch.tensor([10**16 + r, 2**r]) for r in range(4)]
    assert ranks.sum_(numbers[rank].clone()).tolist() == sum(numbers).tolist()  # type: ignore[union-attr]
    assert ranks.max_(numbers[rank].clone()).tolist() == numbers[3].tolist()
    lower = sum(numbers[:rank], torch.zeros(2, dtype=torch.int64))
    assert ranks.before(numbers[rank]).tolist() == lower.tolist()
    assert (ranks.messages, ranks.sent) == ((4, 64), (4, 64), (3, 48), (2, 32))[rank]
    assert ranks.sum_(torch.tensor(0.5, dtype=torch.float64)) == 2


@on("four")
@without_warnings()
def four_processes_choose_what_one_chooses() -> None:
    draw = torch.Generator().manual_seed(0)
    layers = []
    for n, cuts in ((100_000, [30_000, 30_000, 70_000]), (3_000, [1_000, 1_200, 3_000]), (40_000, [1, 2, 20_000])):
        w = torch.randn(n, generator=draw)
        w = w if n == 100_000 else (w * 8).round() / 8  # without and with ties
        costs = torch.randint(1, 9, (n,), generator=draw) if n == 3_000 else torch.ones(1)
        layers.append((w, costs.double(), cuts))

    def chosen(here: list[Magnitudes]) -> tuple[list[int], list[float], list[Tensor]]:
        pool = candidates(survey(here), [5] * len(here))
        counts, at = together(pool, 0.8 * sum(each.population.total for each in pool))
        gone = removals([each.population for each in pool], counts)
        masks = [removal.mask(next(iter(m.parts)).abs()) for m, removal in zip(here, gone, strict=True)]
        return counts, cutoffs(pool, counts, at), masks

    ranks, rank = Ranks.of(dist.group.WORLD), dist.get_rank()
    parts = []
    for w, costs, cuts in layers:
        own = costs if len(costs) == 1 else costs.tensor_split(cuts)[rank]
        parts.append(Magnitudes([w.tensor_split(cuts)[rank]], costs=own.numpy(), ranks=ranks))
    counts, thresholds, masks = chosen(parts)
    expected = chosen([Magnitudes([w], costs=costs.numpy()) for w, costs, _ in layers])
    assert (counts, thresholds) == expected[:2]
    for (w, _, cuts), count, mask in zip(layers, counts, masks, strict=True):
        assert torch.equal(mask, smallest(w.abs(), count).tensor_split(cuts)[rank])


@on("two")
@without_warnings()
def every_rank_has_the_statistics_of_all_batches() -> None:
    rank, draw = dist.get_rank(), torch.Generator().manual_seed(0)
    data = [list(shift + torch.randn(12, 16, 4, generator=draw)) for shift in (0, 3)]
    torch.default_generator.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    sparsifier = rvsm.RVSM(parallel, "l0", sparsity=0.5, steps=10).attach(optimizer)
    for x in data[rank][:10]:
        step(parallel, optimizer, x)
    if rank == 0:  # alone: the other one waits for nothing here
        with sparsifier.sparse_weights(recalibrate=data[0]):
            model.eval()(data[0][0])
    before = model[1].running_mean.clone()
    failed = (RuntimeError, "1 of the other ranks failed here"), (ValueError, "recalibrate got no batches")
    raises(*failed[rank], lambda: sparsifier.finalize(recalibrate=data[0] if rank == 0 else []))
    assert torch.equal(model[1].running_mean, before)
    sparsifier.finalize(recalibrate=data[rank][: 2 + rank])  # two batches on one rank, three on the other
    alone = deepcopy(model)
    states: list[Any] = [None, None]
    dist.all_gather_object(states, model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    rvsm.recalibrate(alone, [*data[0][:2], *data[1][:3]])
    torch.testing.assert_close(alone[1].running_mean, model[1].running_mean)
    torch.testing.assert_close(alone[1].running_var, model[1].running_var)
    assert alone[1].num_batches_tracked == model[1].num_batches_tracked == 5
