"""Batch norm after the weights have changed.

The running statistics of batch norm belong to the weights that produced them. For the sparse copy u they are wrong,
often so much that most of its accuracy is hidden. A few batches correct them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rvsm.modes import modes_kept, random_state_kept
from rvsm.splitting.notices import warn
from rvsm.splitting.shards import data_parallel_groups, drop_gathered
from rvsm.splitting.weights import inside, unwrap

_NONE = object()

Batches = Iterable[Any]
"""Batches: tensors, tuples that begin with the network's inputs, or dicts whose keys are arguments of forward."""


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the batch-norm modules that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


@torch.no_grad()
def recalibrate(model: nn.Module, batches: Batches, *, examples: int = 2048) -> None:
    """Re-estimate the running statistics of all batch-norm modules at the current weights.

    Only batch norm runs in training mode, so dropout and similar layers do not interfere. The statistics are the plain
    average over the batches. Nothing else changes: no gradient, no mode, and no random number of later training. If a
    batch fails, or there are none, the statistics stay unchanged. So do those of modules that do not run in evaluation
    mode, such as auxiliary heads. For a model in DistributedDataParallel or FSDP2, the statistics are the average over
    the batches of all ranks, so every rank must call this function. In FSDP2, it stops when the first rank has no batch
    left.

    Args:
        model: the network.
        batches: a data loader (shuffled) or any iterable of batches; one tensor counts as one batch. From tuples,
            ``forward`` gets the leading items, as many as it requires; from dicts, the matching keys.
        examples: stop after this many examples (on each rank); two thousand are enough.

    >>> model = nn.BatchNorm1d(1)
    >>> recalibrate(model, [torch.tensor([[1.0], [3.0]])])
    >>> model.running_mean
    tensor([2.])

    """
    together = data_parallel_groups(model)  # of FSDP2, in whose forward pass all ranks take part
    ranks = together or _ranks_of(model)
    model = unwrap(model)  # DistributedDataParallel would replace the statistics with those of one rank at each batch
    norms = batch_norms(model)
    if not norms:
        return
    if torch.is_tensor(batches):
        batches = [batches]
    if not isinstance(batches, Iterable):
        raise TypeError(f"recalibrate expects a data loader or a tensor of inputs but got {batches!r}")
    kept = {norm: [(buffer, buffer.clone()) for buffer in norm.buffers()] for norm in norms}
    device = kept[norms[0]][0][0].device
    momenta = [norm.momentum for norm in norms]
    with modes_kept(model), random_state_kept(batches):
        model.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # in torch, None means the cumulative average
            norm.train()
        try:
            with _failing_together(ranks, device):
                _run(model, batches, examples, device, together)
            _average_statistics(norms, ranks)
        except BaseException:
            _restore(kept, norms)
            raise
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
            drop_gathered(model)
        _restore(kept, [norm for norm in norms if not norm.num_batches_tracked])


def _run(
    model: nn.Module, batches: Batches, examples: int, device: torch.device, together: "Sequence[dist.ProcessGroup]"
) -> None:
    """Run batches until there are enough examples; on ranks that must run together, until one of them has enough."""
    seen = 0
    remaining = iter(batches)
    while seen < examples or together:
        try:
            batch = next(remaining, _NONE) if seen < examples else _NONE
            inputs = None if batch is _NONE else _inputs(model, batch, device)
        except Exception:
            _on_any(True, together, device)
            raise
        if _on_any(inputs is None, together, device) or inputs is None:
            break
        try:
            model(*inputs.args, **inputs.kwargs)
            seen += inputs.examples
        except ValueError as error:
            if seen and "more than 1 value per channel" in str(error):
                continue  # the last batch of an epoch, with one example, has no variance
            raise
    if seen == 0:
        raise ValueError(
            "recalibrate got no batches: pass a data loader or a list of input tensors (not an exhausted generator)"
        )


def _restore(kept: Mapping[_BatchNorm, Sequence[tuple[Tensor, Tensor]]], norms: Iterable[_BatchNorm]) -> None:
    for norm in norms:
        for buffer, value in kept[norm]:
            buffer.copy_(value)


class _Inputs(NamedTuple):
    """The arguments of a network from one batch, and its number of examples."""

    args: list[Any]
    kwargs: dict[str, Any]
    examples: int


def _inputs(model: nn.Module, batch: Any, device: torch.device) -> _Inputs:
    """Return the network's arguments from a batch, on a device."""
    args, kwargs = _arguments(model, batch)
    args, kwargs = [_to(x, device) for x in args], {key: _to(x, device) for key, x in kwargs.items()}
    tensors = [x for x in (*args, *kwargs.values()) if torch.is_tensor(x)]
    if not tensors:
        raise TypeError(f"recalibrate expects batches of tensors, (input, …) or dicts but got {type(batch).__name__}")
    return _Inputs(args, kwargs, int(tensors[0].shape[0]))


def _arguments(model: nn.Module, batch: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the network's arguments from a batch; its other items are for the loss.

    From tuples, ``forward`` gets the leading items, as many as it requires; from dicts, the matching keys.
    """
    forward = signature(model.forward)
    if isinstance(batch, Mapping):
        anything = any(p.kind is p.VAR_KEYWORD for p in forward.parameters.values())
        args, kwargs = [], {key: x for key, x in batch.items() if anything or key in forward.parameters}
    elif isinstance(batch, tuple | list):
        places = [p for p in forward.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        needed = sum(p.default is p.empty for p in places)
        args, kwargs = list(batch[: max(needed, 1)]), {}
    else:
        args, kwargs = [batch], {}
    try:
        forward.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"recalibrate expects batches that begin with the inputs of forward{forward}, or dicts with its argument"
            f" names, but this {type(batch).__name__} does not fit: {error}; pass a generator of such dicts"
        ) from None
    return args, kwargs


def _to(value: Any, device: torch.device) -> Any:
    return value.to(device) if torch.is_tensor(value) else value


def _on_any(found: bool, ranks: "Sequence[dist.ProcessGroup]", device: torch.device) -> bool:
    """Return whether something is true on at least one of the ranks."""
    number = torch.tensor(float(found), device=device)
    for group in ranks:
        dist.all_reduce(number, group=group)
    return bool(number)


def _ranks_of(model: nn.Module) -> "list[dist.ProcessGroup]":
    """Return the processes that train a model in DistributedDataParallel, as a group; none if it is not in one."""
    found = (m for m in inside(model) if isinstance(m, nn.parallel.DistributedDataParallel))
    parallel = next(found, None)
    return [] if parallel is None or not dist.is_initialized() else [parallel.process_group]


@contextmanager
def _failing_together(ranks: "Sequence[dist.ProcessGroup]", device: torch.device) -> Iterator[None]:
    """Raise on all ranks if the block raises on one; otherwise the others would wait for it indefinitely."""
    failures = torch.zeros((), device=device)
    try:
        yield
    except Exception:
        failures += 1
        for group in ranks:
            dist.all_reduce(failures, group=group)
        raise
    for group in ranks:
        dist.all_reduce(failures, group=group)
    if failures:
        raise RuntimeError(f"{int(failures)} of the other ranks failed here, so nothing was changed; see their errors")


@torch.no_grad()
def _average_statistics(norms: Iterable[_BatchNorm], ranks: "Sequence[dist.ProcessGroup]") -> None:
    """Average the running statistics over the ranks, each weighted by its number of batches.

    The result equals that of one process that has seen the batches of all ranks.
    """
    if not ranks:
        return
    for norm in norms:
        mean, variance, count = norm.running_mean, norm.running_var, norm.num_batches_tracked
        assert mean is not None
        assert variance is not None
        assert count is not None
        sums = torch.cat([torch.stack([mean, variance]).double() * count, count.double().expand(2, 1)], dim=1)
        for group in ranks:
            dist.all_reduce(sums, group=group)
        if total := int(sums[0, -1]):
            mean.copy_(sums[0, :-1] / total)
            variance.copy_(sums[1, :-1] / total)
            count.fill_(total)


def warn_if_stale(model: nn.Module | None) -> None:
    """Warn that a model's batch-norm statistics belong to other weights."""
    if model is not None and batch_norms(model):
        warn(
            "the batch-norm statistics still belong to the dense weights, and the sparse network may look much worse"
            " than it is; pass recalibrate=loader"
        )
