"""The fixed support: zeros that stay zero.

One mechanism serves healing, `finalize` and fine-tuning. A weight stays exactly zero when it is zero, its gradient is
zero and its momentum is zero: then no elementwise optimizer moves it, weight decay included. The gradients are masked
by hooks on the parameters themselves, so that this holds for any optimizer made later, too.
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from rvsm.splitting.naming import Named, select


class Support:
    """Holds chosen weights of some parameters at zero until `remove` is called."""

    def __init__(self, zeros: Iterable[tuple[str, Tensor, Tensor]]) -> None:
        """Zero the weights and start to mask their gradients; ``zeros`` are (name, parameter, mask of zeros)."""
        self._held: dict[str, tuple[Tensor, Tensor]] = {name: (w, mask) for name, w, mask in zeros}
        self._handles: list[RemovableHandle] = []
        for w, mask in self._held.values():
            with torch.no_grad():
                w.masked_fill_(mask, 0)
            if w.grad is not None:
                w.grad.masked_fill_(mask, 0)
            if w.requires_grad:
                handle = w.register_post_accumulate_grad_hook(_mask_gradient(mask))  # type: ignore[no-untyped-call]
                self._handles.append(handle)

    def packed(self) -> dict[str, Tensor]:
        """Return the mask of zeros of each parameter, a bit for each weight."""
        return {name: pack(mask) for name, (_, mask) in self._held.items()}

    def follow(self, optimizer: Optimizer) -> None:
        """Clear the optimizer's momentum at the zeros, and zero them after each of its steps.

        The second matters only for optimizers that mix the entries of a tensor, as Muon does.
        """
        for w, mask in self._held.values():
            for state in optimizer.state.get(w, {}).values():
                if torch.is_tensor(state) and state.shape == w.shape:
                    state.masked_fill_(mask.to(state.device), 0)
        self._handles.append(optimizer.register_step_post_hook(lambda *_: self._project()))

    def remove(self) -> None:
        """Let the weights go."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @torch.no_grad()
    def _project(self) -> None:
        for w, mask in self._held.values():
            w.masked_fill_(mask.to(w.device), 0)


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
