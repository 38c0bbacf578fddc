"""Put other weights into a model: for the time of a block, or for good."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from rvsm.modes import modes_kept
from rvsm.splitting.layers import Layer
from rvsm.splitting.recalibrate import Batches, buffers_kept, random_state_kept, recalibrate


def write(
    layers: Sequence[Layer], copies: Mapping[str, Tensor], model: nn.Module | None, batches: Batches | None
) -> None:
    """Write copies into the layers, and estimate batch-norm statistics from the batches, if there are any.

    If that fails, nothing has changed.
    """
    kept = _values(layers)
    try:
        _put(layers, copies, model, batches)
    except BaseException:
        _restore(kept)
        raise


@contextmanager
def written(
    layers: Sequence[Layer], copies: Mapping[str, Tensor], model: nn.Module | None, batches: Batches | None
) -> Iterator[None]:
    """Do so for the time of a ``with`` block; then bring weights, buffers, modes and random states back bit for bit.

    The random states, because every pass over a data loader draws from them: without that, looking at the sparse
    network would change the training.
    """
    kept = _values(layers)
    with ExitStack() as stack:
        stack.enter_context(random_state_kept(batches))
        if model is not None:
            stack.enter_context(modes_kept(model))
            stack.enter_context(buffers_kept(model))
        try:
            _put(layers, copies, model, batches)
            yield
        finally:
            _restore(kept)


def _put(
    layers: Sequence[Layer], copies: Mapping[str, Tensor], model: nn.Module | None, batches: Batches | None
) -> None:
    if batches is not None and model is None:
        raise ValueError("recalibrate needs the network: construct the method with the module, not with parameters")
    with torch.no_grad():
        for layer in layers:
            layer.w.copy_(copies[layer.name])
    if batches is not None and model is not None:
        recalibrate(model, batches)


def _values(layers: Sequence[Layer]) -> list[tuple[Tensor, Tensor]]:
    return [(layer.w, layer.w.detach().clone()) for layer in layers]


def _restore(kept: Sequence[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for w, value in kept:
            w.copy_(value)
