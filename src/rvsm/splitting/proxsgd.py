"""The proximal gradient method."""

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from rvsm.groups import Grouping
from rvsm.penalties import Penalty
from rvsm.splitting.base import Method
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import Named
from rvsm.splitting.options import Overrides


class ProxSGD(Method):
    r"""The optimizer's step, then w ← prox(w, η): no splitting, w itself is sparse.

    .. math:: w \leftarrow \mathrm{prox}_{\eta\lambda P}(w - \eta\nabla f(w))

    The threshold falls with the learning rate, so for small η the zeros of ℓ0 and its kin are hard to reach: compare
    with `RVSM`, whose threshold does not depend on η.

    Args:
        model: a module, or pairs of name and parameter.
        penalty: a penalty with its λ.
        groups: how weights are grouped, by name or object; see `rvsm.groups`.
        include: shell patterns of the parameters to sparsify.
        exclude: shell patterns of the parameters to leave alone.
        overrides: options of single layers.

    Reference: Parikh & Boyd, "Proximal algorithms", 2014, section 4.2.

    """

    name = "proxsgd"

    def __init__(
        self,
        model: nn.Module | Named,
        penalty: Penalty,
        *,
        groups: Grouping | str = "element",
        include: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        overrides: Overrides | None = None,
    ) -> None:
        if penalty is None:
            raise TypeError("penalty is missing: give an object such as rvsm.L1(lam=1e-4)")
        super().__init__(
            model,
            penalty=penalty,
            groups=groups,
            include=include,
            exclude=exclude,
            overrides=overrides,
            overridable=["penalty", "groups"],
        )

    def after_step(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Apply the proximal operator with the learning rate as its step."""
        for layer, lr in moving:
            if lr > 0:
                layer.w.copy_(layer.prox(layer.w, lr))

    def sparse(self, layer: Layer) -> Tensor:
        """Return w, which is sparse already."""
        return layer.w.detach().clone()

    def prox_step(self, layer: Layer) -> float:
        """Return the learning rate."""
        return self.learning_rate(layer)
