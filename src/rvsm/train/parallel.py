"""A network that several processes train: DistributedDataParallel, batch norm, buffers and random numbers."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from rvsm.config import Training
from rvsm.data import Batches
from rvsm.modes import buffers_kept, modes_kept, random_state_kept
from rvsm.train.batch_norm import synchronizable, synchronized
from rvsm.train.ranks import ALONE, Ranks
from rvsm.train.restoring import seed_all

# Buffers are agreed on after each step, so that an evaluation finds them alike on all processes.
_RENAMED = "forward_sync_buffers" in signature(DistributedDataParallel).parameters  # in torch 2.13
_AT_EACH_FORWARD = "forward_sync_buffers" if _RENAMED else "broadcast_buffers"


class Parallel:
    """A network on each of the processes, with the same weights and buffers after each step.

    Args:
        model: the network; the other processes get the weights and buffers that the first one has now.
        ranks: the processes.
        images: a few images, to find out which parameters are used.
        training: whether to compile the network, and what batch norm does.

    """

    def __init__(self, model: nn.Module, ranks: Ranks, images: Tensor, training: Training) -> None:
        self.model, self.ranks = model, ranks
        self._synchronizes = training.batch_norm != "local" and bool(synchronizable(model))
        self.forward: nn.Module = model
        self._wrapped: DistributedDataParallel | None = None
        if not ranks.alone:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)
            how: dict[str, Any] = {"find_unused_parameters": _has_unused(model, images), _AT_EACH_FORWARD: False}
            self._wrapped = self.forward = DistributedDataParallel(model, **how)
        self._compiled = training.compile
        if self._compiled:
            self.forward = torch.compile(self.forward)  # type: ignore[assignment]

    def require_images(self, batches: Batches, parts: int) -> None:
        """Raise if local batch norm would not get two images, which a variance needs, of each part of each batch."""
        norms = any(isinstance(module, _BatchNorm) for module in self.model.modules())
        if self.ranks.alone or self._synchronizes or not norms:
            return
        last = batches.images_used - (len(batches) - 1) * batches.batch_size
        smallest = min(part.stop - part.start for part in ALONE.shares(last, parts))
        if smallest // self.ranks.size < 2:
            raise ValueError(
                f"training.batch_norm = 'local' needs at least 2 images on each process, but {smallest} images are"
                f" computed at once on {self.ranks.size} processes; use fewer processes or larger batches"
            )

    def reseed(self, seed: int, step: int) -> None:
        """Seed the generators for dropout in a step; those of the first process go on, and are in its checkpoints."""
        if self.ranks.rank:
            key = repr((seed, step, self.ranks.rank)).encode()
            seed_all(int.from_bytes(blake2b(key, digest_size=8).digest(), "little", signed=True))

    @contextmanager
    def computing(self, *, last: bool) -> Iterator[None]:
        """Prepare for the forward and backward pass of a part of a batch; the last one sums up the gradients."""
        with ExitStack() as stack:
            if not last and self._wrapped is not None:
                stack.enter_context(self._wrapped.no_sync())
            if self._synchronizes and self._wrapped is not None:
                stack.enter_context(synchronized(self.model, self.ranks, compiled=self._compiled))
            yield

    @torch.no_grad()
    def agree_on_buffers(self, weight: float) -> None:
        """Give all processes the buffers of the first, but for local batch norm, the average of all running statistics.

        Args:
            weight: that of this process in the average; the weights of all sum to 1.

        """
        if self.ranks.alone:
            return
        agreed = synchronizable(self.model) if self._synchronizes else []
        done = {id(buffer) for norm in agreed for buffer in norm.buffers()}
        local = [m for m in self.model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
        statistics = [b for m in local for b in (m.running_mean, m.running_var) if b is not None and id(b) not in done]
        if statistics:
            mean = self.ranks.total(torch.cat([b.double() * weight for b in statistics]))
            averages = torch.split(mean, [len(buffer) for buffer in statistics])
            for buffer, average in zip(statistics, averages, strict=True):
                buffer.copy_(average)
        done |= {id(buffer) for norm in local for buffer in norm.buffers()}
        for buffer in self.model.buffers():
            if id(buffer) not in done:
                dist.broadcast(buffer, 0)


def _has_unused(model: nn.Module, images: Tensor) -> bool:
    """Return whether the outputs do not depend on all parameters; to find that out in each step would take time."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    with modes_kept(model), buffers_kept(model), random_state_kept():
        scores = model.train()(images)
        found = torch.autograd.grad(scores.sum(), parameters, allow_unused=True)
    return any(gradient is None for gradient in found)
