"""The proximal gradient method."""

from dataclasses import field
from typing import Any

from torch import Tensor

from rvsm.penalties import Penalty
from rvsm.splitting.layers import Layer
from rvsm.splitting.method import Method


class ProxSGD(Method):
    r"""The optimizer's step, then w ← prox(w, η): no splitting, w itself is sparse.

    .. math:: w \leftarrow \mathrm{prox}_{\eta\lambda P}(w - \eta\nabla f(w))

    The threshold falls with the learning rate, so for small η the zeros of ℓ0 and its kin are hard to reach: compare
    with `RVSM`, whose threshold does not depend on η.

    Args:
        penalty: a penalty with its λ.

    Reference: Parikh & Boyd, "Proximal algorithms", 2014, section 4.2.

    """

    name = "proxsgd"

    penalty: Penalty = field(kw_only=False)

    def layer_options(self) -> dict[str, Any]:
        """Return the penalty, too."""
        return {"penalty": self.penalty, **super().layer_options()}

    def after_step(self, layer: Layer, lr: float) -> None:
        """Apply the proximal operator with the learning rate as its step."""
        if lr > 0:
            layer.w.copy_(layer.prox(layer.w, lr))

    def sparse(self, layer: Layer) -> Tensor:
        """Return w, which is sparse already."""
        return layer.w.detach().clone()

    def threshold(self, layer: Layer) -> float:
        """Return the threshold at the present learning rate."""
        lr = float(self.optimizer_options(layer).get("lr", 0.0))
        return 0.0 if layer.penalty is None else layer.penalty.threshold(lr)
