"""The state of a method for torch.distributed.checkpoint, which loads it on any number of processes."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rvsm.splitting.layers import Layer
from rvsm.splitting.zeros import mask_of

if TYPE_CHECKING:
    from rvsm.splitting.method import Method


class Portable:
    """Saves and loads a method's state in a form that does not depend on the phase or on the number of processes.

    torch.distributed.checkpoint reads a checkpoint into tensors that exist already. Thus there is a tensor of the shape
    of the parameter for everything that the method may keep at any time, as a DTensor if the parameter is one. All
    other values are one text, which also says which of the tensors are in use.
    """

    def __init__(self, method: "Method") -> None:
        self._method = method

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors of all layers by kind, and the other values as JSON."""
        state, layers = self._method.state_dict(), self._method.layers
        memory, support = state.pop("memory"), state.pop("support")
        used = {"memory": {kind: sorted(kept) for kind, kept in memory.items()}, "support": sorted(support)}
        return {
            "values": json.dumps({**state, "used": used}),
            "memory": {
                kind: {layer.name: _or_zeros(memory.get(kind, {}).get(layer.name), layer) for layer in layers}
                for kind in self._method.kinds()
            },
            "support": {layer.name: _mask(support.get(layer.name), layer) for layer in layers},
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned, into a method with the same arguments."""
        try:
            state = json.loads(saved["values"])
            used = state.pop("used")
            memory = {
                kind: {name: saved["memory"][kind][name] for name in names} for kind, names in used["memory"].items()
            }
            support = {name: saved["support"][name] for name in used["support"]}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"expected the result of portable().state_dict() for the method {self._method.name!r} with the same"
                f" options, but values or tensors are missing or damaged: {error}"
            ) from None
        self._method.load_state_dict({**state, "memory": memory, "support": support})


def _or_zeros(value: Tensor | None, layer: Layer) -> Tensor:
    return layer.whole(torch.zeros_like(layer.local, requires_grad=False)) if value is None else value


def _mask(saved: Tensor | None, layer: Layer) -> Tensor:
    """Return a mask of the zeros that is not packed, since bits cannot be divided among processes by rows."""
    if saved is None:
        return layer.whole(torch.zeros_like(layer.local, dtype=torch.bool, requires_grad=False))
    return layer.whole(mask_of(saved, layer))
