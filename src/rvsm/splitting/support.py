"""The fixed support: zeros that stay zero.

One mechanism serves healing, `finalize` and fine-tuning. The gradients of the zeros are masked, by hooks on the
parameters, so that clipping and momentum do not see them; and after each step of any optimizer that trains such a
parameter, whichever it is and whenever it was made, the zeros are written again. The second alone would keep them; the
first keeps the rest of the training clean.
"""

from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary

from rvsm.splitting.naming import Named, select

_zeros: MutableMapping[Tensor, list[Tensor]] = WeakTensorKeyDictionary()
"""Every parameter that is held, anywhere in the process, and the masks of its zeros, one for each who holds it."""


class Support:
    """Holds chosen weights of some parameters at zero until `remove` is called."""

    def __init__(self, zeros: Iterable[tuple[str, Tensor, Tensor]]) -> None:
        """Zero the weights and begin to hold them; ``zeros`` are (name, parameter, mask of zeros)."""
        self._held: dict[str, tuple[Tensor, Tensor]] = {name: (w, mask) for name, w, mask in zeros}
        self._handles: list[RemovableHandle] = []
        for w, mask in self._held.values():
            with torch.no_grad():
                w.masked_fill_(mask.to(w.device), 0)
            if w.grad is not None:
                w.grad.masked_fill_(mask.to(w.grad.device), 0)
            if w.requires_grad:
                handle = w.register_post_accumulate_grad_hook(_mask_gradient(mask))  # type: ignore[no-untyped-call]
                self._handles.append(handle)
            _zeros.setdefault(w, []).append(mask)
        _watch_optimizers()

    @property
    def masks(self) -> dict[str, Tensor]:
        """The mask of zeros of each parameter."""
        return {name: mask for name, (_, mask) in self._held.items()}

    def applied(self, name: str, w: Tensor) -> Tensor:
        """Return a copy of w that is zero where zeros are held under this name."""
        mask = self.masks.get(name)
        return w.clone() if mask is None else w.masked_fill(mask.to(w.device), 0)

    def packed(self) -> dict[str, Tensor]:
        """Return the mask of zeros of each parameter, a bit for each weight."""
        return {name: pack(mask) for name, mask in self.masks.items()}

    def clear_momentum(self, optimizer: Optimizer) -> None:
        """Clear what an optimizer remembers of the zeros."""
        for w, mask in self._held.values():
            for state in optimizer.state.get(w, {}).values():
                if torch.is_tensor(state) and state.shape == w.shape:
                    state.masked_fill_(mask.to(state.device), 0)

    def remove(self) -> None:
        """Let the weights go."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for w, mask in self._held.values():
            others = [other for other in _zeros.get(w, []) if other is not mask]
            if others:
                _zeros[w] = others
            else:
                _zeros.pop(w, None)


def keep_zeros(
    model: nn.Module | Named, *, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
) -> Support:
    """Keep the weights that are exactly zero at zero while the model trains on.

    For a finalized model that was reloaded or copied: hooks travel with neither. The selection of weights is that of
    the sparsifiers. Returns a handle whose ``remove()`` lets the weights go.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> layer.weight.data = torch.tensor([[0.0, 1.0]])
    >>> support = keep_zeros(layer)
    >>> layer(torch.ones(1, 2)).sum().backward()
    >>> layer.weight.grad
    tensor([[0., 1.]])
    """
    layers = select(model, include, exclude)
    return Support((layer.name, layer.w, layer.w.detach() == 0) for layer in layers)


def is_held(w: Tensor) -> bool:
    """Return whether some support holds zeros of a parameter."""
    return w in _zeros


def pack(mask: Tensor) -> Tensor:
    """Return a boolean mask as bytes of eight entries each.

    >>> pack(torch.tensor([True, False, True]))
    tensor([160], dtype=torch.uint8)
    """
    return torch.from_numpy(np.packbits(mask.flatten().cpu().numpy()))


def unpack(packed: Tensor, like: Tensor) -> Tensor:
    """Return the mask that `pack` packed, in the shape, memory order and device of ``like``."""
    bits = np.unpackbits(packed.cpu().numpy(), count=like.numel()).astype(bool)
    return torch.empty_like(like, dtype=torch.bool).copy_(torch.from_numpy(bits).view(like.shape))


def _mask_gradient(mask: Tensor) -> Callable[[Tensor], None]:
    @torch.no_grad()
    def hook(w: Tensor) -> None:
        if w.grad is not None:
            # Not a product: a gradient that overflowed would leave NaN at a weight that has no gradient.
            w.grad.masked_fill_(mask.to(w.grad.device), 0)

    return hook


@torch.no_grad()
def _write_zeros(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for w in group["params"]:
            for mask in _zeros.get(w, ()):
                w.masked_fill_(mask.to(w.device), 0)


_watching: list[RemovableHandle] = []


def _watch_optimizers() -> None:
    """Write the zeros after every optimizer's steps, from the first support on."""
    if not _watching:
        _watching.append(register_optimizer_step_post_hook(_write_zeros))
