"""What the processes of a data-parallel training must agree on."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from rvsm.splitting.naming import inside


def ranks_of(model: nn.Module) -> "dist.ProcessGroup | None":
    """Return the processes that train a model together; None unless it is in a DistributedDataParallel."""
    found = (m for m in inside(model) if isinstance(m, nn.parallel.DistributedDataParallel))
    parallel = next(found, None)
    return None if parallel is None or not dist.is_initialized() else parallel.process_group


@contextmanager
def failing_together(ranks: "dist.ProcessGroup | None", device: torch.device) -> Iterator[None]:
    """Raise on all ranks if the block raises on one: the others would wait for it in what follows."""
    if ranks is None:
        yield
        return
    failures = torch.zeros((), device=device)
    try:
        yield
    except Exception:
        failures += 1
        dist.all_reduce(failures, group=ranks)
        raise
    dist.all_reduce(failures, group=ranks)
    if failures:
        raise RuntimeError(f"{int(failures)} of the other ranks failed here, and nothing was changed; see their errors")


@torch.no_grad()
def average_statistics(norms: Iterable[_BatchNorm], ranks: "dist.ProcessGroup | None") -> None:
    """Average the running statistics over the ranks, each weighted by its number of batches.

    They are then those of one process that has seen the batches of all.
    """
    if ranks is None:
        return
    for norm in norms:
        mean, variance, count = norm.running_mean, norm.running_var, norm.num_batches_tracked
        assert mean is not None
        assert variance is not None
        assert count is not None
        sums = torch.cat([torch.stack([mean, variance]).double() * count, count.double().expand(2, 1)], dim=1)
        dist.all_reduce(sums, group=ranks)
        if total := int(sums[0, -1]):
            mean.copy_(sums[0, :-1] / total)
            variance.copy_(sums[1, :-1] / total)
            count.fill_(total)
