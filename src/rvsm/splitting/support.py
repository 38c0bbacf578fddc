"""The fixed support: zeros that stay zero.

One mechanism serves healing, `finalize` and fine-tuning. Hooks on the parameters mask the gradients of the zeros, so
that clipping and momentum do not see them. After each step of any optimizer that trains such a parameter, no matter
when the optimizer was created, the zeros are written again. The second measure alone would keep the zeros; the first
keeps them from affecting the rest of the training.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary

from rvsm.splitting.layers import on_any
from rvsm.splitting.lending import overwrite
from rvsm.splitting.naming import Named, select
from rvsm.splitting.shards import local, local_gradient


@dataclass(frozen=True, eq=False)
class _Hold:
    """The zeros of a parameter that one support holds, and its hook on the gradient."""

    mask: Tensor
    hook: RemovableHandle


_holds: MutableMapping[Tensor, list[_Hold]] = WeakTensorKeyDictionary()
"""Every parameter in the process with held zeros, and its holds, one for each support."""


class Support:
    """Holds chosen weights of some parameters at zero until `remove` is called.

    Masks are for the parts of the parameters that are on this process.
    """

    def __init__(self, zeros: Iterable[tuple[str, Tensor, Tensor]]) -> None:
        """Zero the weights and start holding them; ``zeros`` are (name, parameter, mask of zeros)."""
        self._held = {name: (w, _hold(w, mask)) for name, w, mask in zeros}
        _watch_optimizers()

    @property
    def masks(self) -> dict[str, Tensor]:
        """The mask of zeros of each parameter."""
        return {name: hold.mask for name, (_, hold) in self._held.items()}

    def applied(self, name: str, w: Tensor) -> Tensor:
        """Return a copy of w that is zero where zeros are held under this name."""
        mask = self.masks.get(name)
        return w.clone() if mask is None else w.masked_fill(mask.to(w.device), 0)

    def apply_to(self, parameters: Mapping[str, Tensor]) -> None:
        """Write the zeros into other parameters of the same names and shapes, without holding them there."""
        for name, mask in self.masks.items():
            found = list(local(parameters[name]).shape) if name in parameters else "none of that name"
            if found != list(mask.shape):
                raise ValueError(
                    f"expected a parameter {name!r} of shape {list(mask.shape)} but found {found}; pass a copy or"
                    " an average of the sparsified model, divided among processes in the same way"
                )
        overwrite((parameters[name], self.applied(name, local(parameters[name]).detach())) for name in self.masks)

    def clear_momentum(self, optimizer: Optimizer) -> None:
        """Clear the optimizer state of the zeros."""
        for w, hold in self._held.values():
            for state in optimizer.state.get(w, {}).values():
                if torch.is_tensor(state) and state.shape == w.shape:
                    local(state).masked_fill_(hold.mask.to(state.device), 0)

    def remove(self) -> None:
        """Stop holding the weights."""
        for w, hold in self._held.values():
            _let_go(w, [hold])


def keep_zeros(
    model: nn.Module | Named, *, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
) -> Support:
    """Keep the weights that are exactly zero at zero while the model continues training.

    Use it for a finalized model that was reloaded or copied, since neither preserves hooks. The weights are selected as
    by the sparsifiers. Returns a handle whose ``remove()`` releases the weights.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> layer.weight.data = torch.tensor([[0.0, 1.0]])
    >>> support = keep_zeros(layer)
    >>> layer(torch.ones(1, 2)).sum().backward()
    >>> layer.weight.grad
    tensor([[0., 1.]])
    """
    layers = select(model, include, exclude)
    zeros = [(layer.name, layer.parameter, layer.w.detach() == 0) for layer in layers]
    if not any(on_any(layers, [bool(mask.any()) for _, _, mask in zeros])):
        warnings.warn(
            "keep_zeros found no zeros to keep; finalize() the model first, or, if this is a copy or an average of"
            " a sparsified model, write the zeros into it with sparsifier.apply_zeros(copy)",
            stacklevel=2,
        )
    return Support(zeros)


def is_held(w: Tensor) -> bool:
    """Return whether some support holds zeros of a parameter."""
    return w in _holds


def let_go(parameters: Iterable[Tensor]) -> None:
    """Release all zeros of some parameters, whoever holds them."""
    for w in parameters:
        _let_go(w, _holds.get(w, []))


def pack(mask: Tensor) -> Tensor:
    """Return a boolean mask as bytes with eight entries each.

    >>> pack(torch.tensor([True, False, True]))
    tensor([160], dtype=torch.uint8)
    """
    return torch.from_numpy(np.packbits(mask.flatten().cpu().numpy()))


def unpack(packed: Tensor, shape: torch.Size) -> Tensor:
    """Return the mask of this shape that `pack` packed."""
    bits = np.unpackbits(packed.cpu().numpy(), count=shape.numel()).astype(bool)
    return torch.from_numpy(bits).view(shape)


@torch.no_grad()
def _hold(w: Tensor, mask: Tensor) -> _Hold:
    """Zero the weights under a mask, and register the hold."""
    local(w).masked_fill_(mask.to(w.device), 0)
    mask_gradient = _gradient_mask(mask)
    mask_gradient(w)
    # A frozen parameter accepts no hook but keeps an existing one, which is needed when it is unfrozen.
    trains = w.requires_grad
    w.requires_grad_(True)
    hold = _Hold(mask, w.register_post_accumulate_grad_hook(mask_gradient))  # type: ignore[no-untyped-call]
    w.requires_grad_(trains)
    _holds.setdefault(w, []).append(hold)
    return hold


def _let_go(w: Tensor, holds: list[_Hold]) -> None:
    """Undo `_hold`."""
    for hold in holds:
        hold.hook.remove()
    if others := [hold for hold in _holds.get(w, []) if hold not in holds]:
        _holds[w] = others
    else:
        _holds.pop(w, None)


def _gradient_mask(mask: Tensor) -> Callable[[Tensor], None]:
    """Return a hook that zeroes a parameter's gradient under a mask."""

    @torch.no_grad()
    def hook(w: Tensor) -> None:
        if (gradient := local_gradient(w)) is None:
            return
        zeros = mask.to(gradient.device)
        if gradient.is_sparse:  # for example that of an embedding, which contains only the rows that were used
            gradient, zeros = gradient._values(), zeros[tuple(gradient._indices())]
        # Not a product: a gradient that overflowed would leave NaN at a weight that has no gradient.
        gradient.masked_fill_(zeros, 0)

    return hook


@torch.no_grad()
def _write_zeros(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for w in group["params"]:
            for hold in _holds.get(w, ()):
                local(w).masked_fill_(hold.mask.to(w.device), 0)


_watching: list[RemovableHandle] = []


def _watch_optimizers() -> None:
    """Write the zeros after the steps of every optimizer, starting with the first support."""
    if not _watching:
        _watching.append(register_optimizer_step_post_hook(_write_zeros))
