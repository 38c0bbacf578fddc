"""A method as somebody might add it: all of it is in this file, and the registry gets one line."""

from typing import Any

from torch import Tensor

from rvsm.splitting.layers import Layer
from rvsm.splitting.targeted import Targeted


class Fading(Targeted):
    """Weights that the u of the step before leaves out fade towards zero.

    Args:
        rate: the fraction of its way to u that w makes in a step.

    """

    name = "fading"
    keeps = ("u",)

    rate: float = 0.1

    def layer_options(self) -> dict[str, Any]:
        return {"penalty": "l0", **super().layer_options()}

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "rate": repr(self.rate)}

    def sparse(self, layer: Layer) -> Tensor:
        return layer.prox(layer.w.detach())

    def before_step(self, layer: Layer, lr: float) -> None:
        u = layer.memory.get("u")
        if u is not None:
            layer.w.lerp_(u, self.rate)

    def after_step(self, layer: Layer, lr: float) -> None:
        layer.memory["u"] = self.sparse(layer)
