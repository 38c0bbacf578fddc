"""Write the sparse copy into the model, for the duration of a block or permanently."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from rvsm.modes import buffers_kept, modes_kept, random_state_kept
from rvsm.splitting.layers import Layer
from rvsm.splitting.recalibrate import Batches, recalibrate
from rvsm.splitting.shards import drop_gathered, local

Output = Literal["u", "masked"]


def output_of(layer: Layer, u: Tensor, output: Output) -> Tensor:
    """Return the values to write for a layer: u, or w on the support of u."""
    if output not in ("u", "masked"):
        raise ValueError(f"unknown output {output!r}; choose from u, masked")
    return u if output == "u" else layer.w.detach().masked_fill(u == 0, 0)


@torch.no_grad()
def overwrite(values: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Write (parameter, value) into the parameters, for those that are divided among processes the part that is here.

    Inside torch.autocast, casts of the weights are cached until the region ends; this function clears the casts of the
    old values.
    """
    for w, value in values:
        local(w).copy_(value)
    torch.clear_autocast_cache()


def write(
    layers: Sequence[Layer], copies: Mapping[str, Tensor], model: nn.Module | None, batches: Batches | None
) -> None:
    """Write copies into the layers, and estimate batch-norm statistics from the batches, if there are any.

    If this fails, nothing changes.
    """
    kept = _values(layers)
    try:
        _put(layers, copies, model, batches)
    except BaseException:
        drop_gathered(model)
        overwrite(kept)
        raise


@contextmanager
def written(
    layers: Sequence[Layer], copies: Mapping[str, Tensor], model: nn.Module | None, batches: Batches | None
) -> Iterator[None]:
    """Do the same for a ``with`` block, then restore weights, buffers, modes and random states bit for bit.

    Random states are restored because every pass over a data loader draws from them. Otherwise, evaluating the sparse
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
            drop_gathered(model)
            overwrite(kept)


def _put(
    layers: Sequence[Layer], copies: Mapping[str, Tensor], model: nn.Module | None, batches: Batches | None
) -> None:
    if batches is not None and model is None:
        raise ValueError("recalibrate needs the network: construct the method from the module, not from parameters")
    overwrite((layer.parameter, copies[layer.name]) for layer in layers)
    if batches is not None and model is not None:
        recalibrate(model, batches)


def _values(layers: Sequence[Layer]) -> list[tuple[Tensor, Tensor]]:
    return [(layer.parameter, layer.local.detach().clone()) for layer in layers]
