"""Tensors that cannot be sparsified, and the sentences that say so."""

import torch
from torch import Tensor


def require_whole(name: str, w: Tensor) -> None:
    """Raise for shards: a DTensor, or what FullyShardedDataParallel makes of a parameter, which it marks."""
    if hasattr(w, "to_local") or hasattr(w, "_fsdp_flattened"):
        kind = type(w).__name__ if hasattr(w, "to_local") else "shard of FullyShardedDataParallel"
        raise ValueError(
            f"{name!r} is a {kind}, of which this process holds only a part, and a threshold needs the quantiles"
            " of all; train with DistributedDataParallel instead of FSDP"
        )


def require_values(name: str, w: Tensor) -> None:
    """Raise for a tensor that has a shape but no values."""
    if w.is_meta:
        raise ValueError(
            f"{name!r} is on the device 'meta' and has no values; move the model to a device with"
            " model.to_empty(device='cpu') and load its weights before sparsifying it"
        )


def require_dense_gradient(name: str, gradient: Tensor | None) -> None:
    """Raise if a pull, which is of all weights, cannot be added to a gradient of a few."""
    if gradient is not None and gradient.layout != torch.strided:
        raise ValueError(
            f"{name!r} has a sparse gradient, to which decoupled=False cannot add the pull of all its weights; leave"
            " the pull decoupled, or make the embedding with sparse=False"
        )


def require_trainable(name: str, w: Tensor) -> None:
    """Raise for tensors that cannot be pulled: shards, shapes without values, and types too short for small steps."""
    require_whole(name, w)
    require_values(name, w)
    if w.is_complex():
        raise ValueError(f"{name!r} is complex, and penalties are of real weights; leave it out with exclude=[...]")
    if w.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"{name!r} is {str(w.dtype).removeprefix('torch.')}, in which a pull of less than one part in 128 is"
            " rounded away and the weight never moves; keep the weights in float32 and use torch.autocast for speed"
        )
