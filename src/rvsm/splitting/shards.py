"""Parameters that are divided among processes: torch's DTensors, as made by ``fully_shard`` or ``parallelize_module``.

All elementwise work is done on the local part, which `local` returns. What the parts mean for groups of weights is in
`division.py`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from rvsm.splitting.ranks import Ranks

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class Shard:
    """The part of a tensor that this process holds: a range of the indices along one dimension.

    Attributes:
        shape: the shape of the whole tensor.
        dim: the dimension along which it is divided.
        ranks: the processes among which it is divided.

    """

    shape: torch.Size
    dim: int
    ranks: Ranks

    def of(self, whole: Tensor) -> Tensor:
        """Return this process's part of a whole tensor, as a view."""
        begin, end = parts(self.shape[self.dim], self.ranks.size)[self.ranks.rank]
        return whole.narrow(self.dim, begin, end - begin)


def parts(length: int, ranks: int) -> list[tuple[int, int]]:
    """Return where the part of each rank begins and ends.

    As in torch, all parts have the same length, except that the last ones can be shorter, or empty.

    >>> parts(5, ranks=4)
    [(0, 2), (2, 4), (4, 5), (5, 5)]
    """
    each = ceil(length / ranks)
    return [(min(rank * each, length), min((rank + 1) * each, length)) for rank in range(ranks)]


def is_distributed(w: Tensor) -> bool:
    """Return whether a tensor is a DTensor. There are none as long as torch.distributed.tensor is not imported."""
    return hasattr(w, "to_local")


def local(w: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds; the tensor itself if it is not distributed.

    Writing into the part changes the tensor.
    """
    if not is_distributed(w):
        return w
    with torch.no_grad():
        part: Tensor = cast("DTensor", w).to_local()
    return part


def local_gradient(w: Tensor) -> Tensor | None:
    """Return the part of a parameter's gradient that belongs to its own part."""
    gradient = w.grad
    if gradient is None or not is_distributed(gradient):
        return gradient
    ours, theirs = cast("DTensor", w), cast("DTensor", gradient)
    if theirs.placements != ours.placements:  # of a tensor-parallel module whose ranks have only summands of it
        w.grad = theirs.redistribute(ours.device_mesh, ours.placements)
        return local(w.grad)
    return local(gradient)


def whole(part: Tensor, like: Tensor) -> Tensor:
    """Return the tensor of which the processes hold these parts, divided as ``like``; the part itself if that is not.

    The parts are not sent anywhere.
    """
    if not is_distributed(like):
        return part
    from torch.distributed.tensor import DTensor

    given = cast("DTensor", like)
    return DTensor.from_local(
        part, given.device_mesh, given.placements, run_check=False, shape=given.shape, stride=given.stride()
    )


def shard_of(w: Tensor) -> Shard | None:
    """Return which part of a tensor this process holds; None if it holds all of it."""
    if not is_distributed(w):
        return None
    mesh, placements = cast("DTensor", w).device_mesh, cast("DTensor", w).placements
    divided = [(i, placement) for i, placement in enumerate(placements) if not placement.is_replicate()]
    if not divided:
        return None
    [(i, placement)] = divided  # `require_known_layout` has refused others
    ranks = Ranks.of(mesh.get_group(i))
    return None if ranks.size == 1 else Shard(w.shape, cast("Any", placement).dim % w.dim(), ranks)


def require_known_layout(name: str, w: Tensor) -> None:
    """Raise for a tensor whose parts cannot be handled."""
    if hasattr(w, "_fsdp_flattened"):
        raise ValueError(
            f"{name!r} belongs to FullyShardedDataParallel, which flattens parameters, so that their rows and channels"
            " are lost; shard the model with torch.distributed.fsdp.fully_shard (FSDP2) instead"
        )
    if not is_distributed(w):
        return
    placements = cast("DTensor", w).placements
    divided = [placement for placement in placements if not placement.is_replicate()]
    if len(divided) > 1:
        raise ValueError(
            f"{name!r} is divided along {len(divided)} dimensions of its device mesh, {placements}, but one is"
            " supported; shard the model with fully_shard or with parallelize_module, not with both (replicating the"
            " shards along another dimension, as in HSDP, is possible)"
        )
    if any(type(placement).__name__ != "Shard" for placement in divided):
        raise ValueError(
            f"{name!r} is a DTensor with the placements {placements}, but only Shard and Replicate are supported;"
            " redistribute it, or leave it out with exclude=[...]"
        )


def drop_gathered(model: nn.Module | None) -> None:
    """Let FSDP2 forget the whole parameters that it has gathered for a forward pass.

    It keeps those of the root module until the next backward pass. As long as it does, the model's attributes are not
    the parameters of the optimizer, and new values in these have no effect.
    """
    for module in _fsdp_modules(model):
        module.reshard()


@contextmanager
def gathered(model: nn.Module) -> Iterator[dict[int, Tensor]]:
    """Yield a dict that gets the parameters of the model by the identity of the whole tensors that FSDP2 gathers."""
    drop_gathered(model)
    seen: dict[int, Tensor] = {}

    def look(parameters: Mapping[str, Tensor]) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, _: Any) -> None:
            seen.update((id(w), parameters[name]) for name, w in module.named_parameters(remove_duplicate=False))

        return hook

    found = [(module, dict(module.named_parameters(remove_duplicate=False))) for module in _fsdp_modules(model)]
    handles = [module.register_forward_pre_hook(look(parameters)) for module, parameters in found]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
        drop_gathered(model)


def data_parallel_groups(model: nn.Module) -> "list[ProcessGroup]":
    """Return the process groups that together connect all processes which train an FSDP2 model; none if it is not one.

    A sum over all these processes is a sum over each group in turn.
    """
    if next(_fsdp_modules(model), None) is None:
        return []
    drop_gathered(model)
    meshes = (cast("DTensor", w).device_mesh for w in model.parameters() if is_distributed(w))
    mesh = next(meshes, None)
    return [] if mesh is None else list(mesh.get_all_groups())


def _fsdp_modules(model: nn.Module | None) -> Iterator[Any]:
    fsdp = sys.modules.get("torch.distributed.fsdp")  # as long as it is not imported, there are none
    if fsdp is not None and model is not None:
        yield from (module for module in model.modules() if isinstance(module, fsdp.FSDPModule))
