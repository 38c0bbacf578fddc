"""The proximal gradient method."""

from dataclasses import field
from typing import Any

from torch import Tensor

from rvsm.penalties import Penalty
from rvsm.splitting.layers import Layer
from rvsm.splitting.method import Method


class ProxSGD(Method):
    r"""The optimizer's step, followed by w ← prox(w, η): there is no splitting, and w itself is sparse.

    .. math:: w \leftarrow \mathrm{prox}_{\eta\lambda P}(w - \eta\nabla f(w))

    The threshold decreases with the learning rate, so zeros are hard to reach for small η with ℓ0 and its relatives.
    In contrast, the threshold of `RVSM` does not depend on η.

    Args:
        penalty: a penalty with its λ.

    Reference: Parikh & Boyd, "Proximal algorithms", 2014, section 4.2.

    """

    name = "proxsgd"

    penalty: Penalty = field(kw_only=False)

    def layer_options(self) -> dict[str, Any]:
        """Add the penalty."""
        return {"penalty": self.penalty, **super().layer_options()}

    def after_step(self, layer: Layer, lr: float) -> None:
        """Apply the proximal operator with the learning rate as its step."""
        if lr > 0:
            layer.w.copy_(layer.prox(layer.w, lr))

    def sparse(self, layer: Layer) -> Tensor:
        """Return w, which is already sparse."""
        return layer.w.detach().clone()

    def threshold(self, layer: Layer) -> float:
        """Return the threshold at the current learning rate."""
        lr = float(self.optimizer_options(layer).get("lr", 0.0))
        return 0.0 if layer.penalty is None else layer.penalty.threshold(lr)
