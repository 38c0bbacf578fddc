"""The alternating direction method of multipliers, in the form used for networks."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.groups import Grouping
from rvsm.penalties import Penalty
from rvsm.penalties.base import require_positive
from rvsm.splitting.base import Method
from rvsm.splitting.budget import require_share
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import Named
from rvsm.splitting.options import Overrides
from rvsm.splitting.rates import lowered, require_no_overshoot, total_pull
from rvsm.splitting.selection import smallest


class ADMM(Method):
    r"""Gradient descent on w, pulled towards a sparse copy u and pushed by a multiplier z that closes the gap.

    .. math::
        w &\leftarrow w - \eta \nabla f(w) - \eta\rho(w - u + z/\rho) \\
        u &\leftarrow \mathrm{prox}(w + z/\rho), \quad z \leftarrow z + \rho(w - u) \quad\text{every few steps}

    The exact minimisation in w of textbook ADMM is replaced by the optimizer's steps, as is usual for networks. The
    multipliers are kept for the whole training.

    Args:
        model: a module, or pairs of name and parameter.
        penalty: a penalty with its λ; or leave it out and give a sparsity.
        sparsity: a hard constraint: u keeps the largest groups of each layer, and this share of its groups is zero.
        rho: the weight ρ of the quadratic term; with a sparsity and ``steps`` it may be left out, and ``pull`` sets it.
        pull: sets ρ = pull/(η₀·steps), η₀ being the largest learning rate of the parameter group so far, as for `RVSM`;
            when ρ changes, z/ρ stays. 100 by default, or a quarter of the steps if that is less.
        interval: optimizer steps between two updates of u and z; an epoch's worth is common.
        retrain: the share of the steps, the last ones, in which the zeros of u are fixed and the other weights train on
            without a pull, as Zhang et al. do after ADMM; needs ``steps``.
        steps: the number of optimizer steps of the whole training.
        groups: how weights are grouped, by name or object; see `rvsm.groups`.
        include: shell patterns of the parameters to sparsify.
        exclude: shell patterns of the parameters to leave alone.
        overrides: options of single layers: "rho", "groups", and "penalty" or "sparsity", whichever ADMM is given.

    Reference: Dinh & Xin, section 3.3; Zhang et al., "A systematic DNN weight pruning framework using ADMM", 2018.

    """

    name = "admm"

    def __init__(
        self,
        model: nn.Module | Named,
        penalty: Penalty | None = None,
        *,
        rho: float | None = None,
        pull: float | None = None,
        sparsity: float | None = None,
        interval: int = 1,
        retrain: float = 0.0,
        steps: int | None = None,
        groups: Grouping | str = "element",
        include: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        overrides: Overrides | None = None,
    ) -> None:
        if (penalty is None) == (sparsity is None):
            raise ValueError("give ADMM either a penalty with its λ, or a sparsity for its hard constraint")
        if sparsity is not None:
            sparsity = require_share(sparsity)
        if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
            raise ValueError(f"interval must be a whole number of steps ≥ 1 but is {interval!r}")
        if isinstance(retrain, bool) or not isinstance(retrain, int | float) or not 0 <= retrain < 1:
            raise ValueError(f"retrain must be a share of the steps in [0, 1) but is {retrain!r}")
        if retrain and not _is_count(steps):
            raise ValueError(f"retrain needs steps, the number of steps of the whole training, but they are {steps!r}")
        rate = 0.0
        if rho is None:
            if penalty is not None or not _is_count(steps):
                raise ValueError(
                    "rho is missing: with a sparsity it follows from steps=, the number of steps of the whole training;"
                    " with a penalty, whose threshold depends on λ/ρ, give rho="
                )
            assert steps is not None
            pull = total_pull(None if pull is None else require_positive("pull", pull), steps)
            rate = pull / steps
        elif pull is not None:
            raise ValueError("give either rho= or pull=, which sets it, not both")
        super().__init__(
            model,
            penalty=penalty,
            beta=rho,
            groups=groups,
            include=include,
            exclude=exclude,
            overrides=overrides,
            overridable=["rho", "groups", "sparsity" if penalty is None else "penalty"],
        )
        self.interval, self.retrain, self.pull = interval, retrain, pull
        self._largest_rate = rate  # of the layers whose ρ is left to the total pull: ηρ at the largest η
        self._by_pull = {layer.name for layer in self.layers if layer.beta is None}
        self._fixed_at = None if not retrain or steps is None else round((1 - retrain) * steps)
        for layer in self.layers:
            if layer.beta is not None:
                layer.beta = require_positive("rho", layer.beta)
            if penalty is None and layer.sparsity is None:
                layer.sparsity = sparsity

    def settings(self) -> dict[str, str]:
        """Return the interval, when the zeros are fixed, and the total pull."""
        mine = {"interval": repr(self.interval), "fixed at": repr(self._fixed_at), "pull": repr(self.pull)}
        return {**super().settings(), **mine}

    def begin(self, optimizer: Optimizer, *, another: bool) -> None:
        """Forget the ρ that the total pull set for another optimizer, whose learning rates were others."""
        super().begin(optimizer, another=another)
        for layer in self.layers:
            if another and layer.name in self._by_pull:
                self._change_rho(layer, None)

    def prepare(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Set ρ from the total pull, where it is not given; begin with u = prox(w), z = 0."""
        if self._support is not None:
            return
        for layer, lr in moving:
            if layer.name in self._by_pull:
                self._change_rho(layer, lowered(layer.beta, self._largest_rate, lr))
            if layer.name not in self.memory.setdefault("z", {}):
                self.memory["z"][layer.name] = torch.zeros_like(layer.w)
                self.memory.setdefault("u", {})[layer.name] = self.sparse(layer)

    def before_step(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Pull w by ηρ(w − u + z/ρ)."""
        for layer, lr in moving:
            require_no_overshoot(lr, self._rho(layer), layer.name)
        for layer, lr in moving:
            u, z = self.memory["u"][layer.name], self.memory["z"][layer.name]
            layer.w.lerp_(u.sub(z, alpha=1 / self._rho(layer)), self.pull_rate(layer, lr))

    def after_step(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Update u and z when the interval has passed; or fix the zeros of u when it is time for that."""
        if self._fixed_at is not None and self.step >= self._fixed_at:
            self.fix_support({layer.name: self.sparse(layer) == 0 for layer in self.acting})
            return
        if self.step % self.interval:
            return
        for layer, _ in moving:
            u = self.memory["u"][layer.name] = self.sparse(layer)
            self.memory["z"][layer.name].add_(layer.w - u, alpha=self._rho(layer))

    def sparse(self, layer: Layer) -> Tensor:
        """Return u = prox(w + z/ρ), or its k largest groups."""
        shifted = self.shifted(layer)
        if layer.sparsity is None:
            return layer.prox(shifted, self.prox_step(layer))
        magnitudes = layer.magnitudes(shifted)
        gone = smallest(magnitudes, min(round(layer.sparsity * magnitudes.numel()), magnitudes.numel() - 1))
        return shifted.masked_fill(layer.spread(gone), 0)

    def shifted(self, layer: Layer) -> Tensor:
        """Return w + z/ρ, of which u is made."""
        w = layer.w.detach()
        z = self.memory.get("z", {}).get(layer.name)
        return w if z is None else w.add(z, alpha=1 / self._rho(layer))

    def pull_rate(self, layer: Layer, lr: float) -> float:
        """Return the share ηρ of its way to u − z/ρ that w makes in a step."""
        return lr * self._rho(layer)

    def prox_step(self, layer: Layer) -> float:
        """Return 1/ρ."""
        return 1 / self._rho(layer)

    def _change_rho(self, layer: Layer, rho: float | None) -> None:
        """Change ρ and keep z/ρ, the way from w to what u is made of."""
        before = self._rho(layer)
        layer.beta = rho
        if layer.name in self.memory.get("z", {}) and self._rho(layer) != before:
            self.memory["z"][layer.name].mul_(self._rho(layer) / before)

    def _rho(self, layer: Layer) -> float:
        # Unknown until the first step with a learning rate above zero; until then nothing is pulled, and any will do.
        return 1.0 if layer.beta is None else layer.beta


def _is_count(steps: object) -> bool:
    return isinstance(steps, int) and not isinstance(steps, bool) and steps >= 1
