"""The zeros of a method's layers while they are fixed: during healing or retraining, and after finalizing."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer, Layers, totals
from rvsm.splitting.naming import Named, parameters_of
from rvsm.splitting.shards import is_distributed
from rvsm.splitting.support import Support, pack, unpack


class FixedZeros:
    """The weights that are fixed at zero, if any; zeros of a loaded state wait until the method is attached."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._support: Support | None = None
        self._awaiting: Mapping[str, Tensor] = {}  # masks of a loaded state, packed

    def __bool__(self) -> bool:
        """Return whether zeros are fixed."""
        return self._support is not None

    @property
    def masks(self) -> dict[str, Tensor]:
        """The masks of the fixed zeros, by the name of the layer."""
        return {} if self._support is None else self._support.masks

    def fix(self, masks: Mapping[str, Tensor], optimizer: Optimizer | None) -> None:
        """Fix the weights under these masks at zero, and clear their optimizer state.

        From then on, nothing is penalised, and no memory is kept. Layers without a mask here, for example frozen ones,
        keep zeros that were already fixed. Without any masks, existing zeros are held in the current tensors.
        """
        masks = {**self.masks, **masks}
        if self._support is not None:
            self._support.remove()
        fixed = [layer for layer in self._layers if layer.name in masks]
        self._support = Support((layer.name, layer.parameter, masks[layer.name]) for layer in fixed)
        if optimizer is not None:
            self._support.clear_momentum(optimizer)
        for layer in self._layers:
            layer.memory.clear()
            if layer.attached:
                layer.penalty = layer.away = None

    def free(self) -> None:
        """Release the zeros, so that they can become non-zero again."""
        if self._support is not None:
            self._support.remove()
        self._support, self._awaiting = None, {}

    def load(self, packed: Mapping[str, Tensor], optimizer: Optimizer | None) -> None:
        """Replace the fixed zeros by those of a saved state."""
        self.free()
        self._awaiting = dict(packed)
        self.resume(optimizer)

    def resume(self, optimizer: Optimizer | None) -> None:
        """Hold the zeros in the current tensors, which may have changed or have just been attached."""
        if self._support is not None:
            self.fix({}, optimizer)
        if self._awaiting and (attached := self._layers.attached):
            waiting = [layer for layer in attached if layer.name in self._awaiting]
            self.fix({layer.name: mask_of(self._awaiting[layer.name], layer) for layer in waiting}, optimizer)
            self._awaiting = {}

    def packed(self) -> dict[str, Tensor]:
        """Return the masks for a saved state: packed, or divided among processes as the weights are."""
        if self._support is None:
            return dict(self._awaiting)
        layers = {layer.name: layer for layer in self._layers}
        return {name: _saved(mask, layers[name]) for name, mask in self.masks.items()}

    def applied(self, layer: Layer) -> Tensor:
        """Return a copy of a layer's w that is zero where zeros are fixed, even if other code has changed it since."""
        w = layer.w.detach()
        return w.clone() if self._support is None else self._support.applied(layer.name, w)

    def apply_to(self, model: nn.Module | Named) -> None:
        """Write the zeros into another model with the same names."""
        if self._support is None:
            raise RuntimeError("no zeros are fixed yet; call apply_zeros during the phase 'heal', or after finalize()")
        self._support.apply_to(parameters_of(model))


def is_mask(saved: object, w: Tensor) -> bool:
    """Return whether a value of a saved state is a mask of a parameter, packed or not."""
    if not isinstance(saved, Tensor):
        return False
    packed = saved.dtype == torch.uint8 and saved.numel() == (w.numel() + 7) // 8
    return packed or (saved.dtype == torch.bool and saved.shape == w.shape)


def _saved(mask: Tensor, layer: Layer) -> Tensor:
    return layer.whole(mask.clone()) if is_distributed(layer.parameter) else pack(mask)


def mask_of(saved: Tensor, layer: Layer) -> Tensor:
    """Return a saved mask of a layer, of the weights that are here and in their memory order."""
    mask = saved if saved.dtype == torch.bool else unpack(saved, layer.parameter.shape)
    return torch.empty_like(layer.local, dtype=torch.bool).copy_(layer.part_of(mask))


def reservations(layers: Layers, zeros: FixedZeros, budget: Budget | None, step: int) -> Iterator[str]:
    """Yield warnings for finalizing a network now, about results that the user may not expect."""
    if budget is not None and step < budget.steps:
        yield (
            f"finalized at step {step} of {budget.steps}, in the phase {budget.phase(step)!r}: the sparsity is met, but"
            " the weights were not fully trained for it; train longer, or give the budget the actual number of steps"
        )
    active = [layer.name for layer in layers.active]
    if idle := [layer.name for layer in layers.attached if layer.name not in active]:
        yield (
            f"{len(idle)} of the weights are frozen or never had a gradient; they stay unchanged and do not count:"
            f" {', '.join(idle[:5])}"
        )
    settled = bool(zeros) and budget is not None and budget.has_settled(step)
    if late := [name for name in active if settled and name not in zeros.masks]:
        yield (
            f"{len(late)} of the weights had their first gradient after the zeros were fixed, and stay dense:"
            f" {', '.join(late[:5])}"
        )
    if grown := _grown(layers, zeros):
        yield (
            f"{grown} weights that should be zero were not, perhaps because a checkpoint or an average was loaded after"
            " the zeros were fixed; they are now set to zero without healing. Continue training, or load the"
            " sparsifier's state_dict() that belongs to the weights"
        )


def _grown(layers: Sequence[Layer], zeros: FixedZeros) -> int:
    """Return how many weights should be zero but are not."""
    if not zeros:
        return 0
    return sum(int(n) for (n,) in totals(layers, [[int((layer.w != zeros.applied(layer)).sum())] for layer in layers]))
