"""The alternating direction method of multipliers, in the form used for networks."""

from dataclasses import field
from typing import Any

import torch
from torch import Tensor

from rvsm.penalties import Penalty
from rvsm.splitting.budget import require_fraction
from rvsm.splitting.layers import Layer
from rvsm.splitting.method import Method
from rvsm.splitting.options import total_pull
from rvsm.splitting.selection import smallest
from rvsm.splitting.units import Unit


class ADMM(Method):
    r"""Gradient descent on w, pulled towards a sparse copy u and pushed by a multiplier z that closes the gap.

    .. math::
        w &\leftarrow w - \eta \nabla f(w) - \eta\rho(w - u + z/\rho) \\
        u &\leftarrow \mathrm{prox}(w + z/\rho), \quad z \leftarrow z + \rho(w - u) \quad\text{every few steps}

    The optimizer's steps replace the exact minimisation over w of textbook ADMM, as is usual for networks. The
    multipliers are kept for the whole training.

    Args:
        penalty: a penalty with its λ; omit it to use ``sparsity`` instead.
        sparsity: a hard constraint: this fraction of the groups of each layer, the smallest ones, is zero in u.
        rho: the weight ρ of the quadratic term; with a sparsity and ``steps`` it is optional, and ``pull`` sets it.
        pull: sets ρ = pull/(η₀·steps), where η₀ is the largest learning rate of the parameter group so far, as in
            `RVSM`. When ρ changes, z/ρ stays. The default is 100, or a quarter of the steps if that is less.
        interval: the number of optimizer steps between two updates of u and z; one epoch is common.
        retrain: the final fraction of the steps, in which the zeros of u are fixed and the other weights continue
            training without a pull, as Zhang et al. do after ADMM; requires ``steps``.
        steps: the number of optimizer steps of the whole training.
        overrides: options of single layers: "rho", "groups", and "penalty" or "sparsity", whichever is used.

    Reference: Dinh & Xin, section 3.3; Zhang et al., "A systematic DNN weight pruning framework using ADMM", 2018.

    """

    name = "admm"
    keeps = ("u", "z")

    penalty: Penalty | None = field(default=None, kw_only=False)
    rho: float | None = None
    pull: float | None = None
    sparsity: float | None = None
    interval: int = 1
    retrain: float = 0.0
    steps: int | None = None

    def __post_init__(self) -> None:
        if (self.penalty is None) == (self.sparsity is None):
            raise ValueError("give ADMM either a penalty with its λ, or a sparsity as its hard constraint")
        if self.sparsity is not None:
            self.sparsity = require_fraction(self.sparsity)
        if not _is_count(self.interval):
            raise ValueError(f"interval must be an integer number of steps ≥ 1 but is {self.interval!r}")
        if isinstance(self.retrain, bool) or not isinstance(self.retrain, int | float) or not 0 <= self.retrain < 1:
            raise ValueError(f"retrain must be a fraction of the steps in [0, 1) but is {self.retrain!r}")
        steps = self.steps if _is_count(self.steps) else None
        if self.retrain and steps is None:
            raise ValueError(
                f"retrain needs steps, the number of steps of the whole training, but steps is {self.steps!r}"
            )
        if self.rho is not None and self.pull is not None:
            raise ValueError("give either rho= or pull=, which sets rho, not both")
        self._retrains_from = None if not self.retrain or steps is None else round((1 - self.retrain) * steps)
        super().__post_init__()
        if self.rho is None:
            if self.penalty is not None or steps is None:
                raise ValueError(
                    "rho is missing: with a sparsity, give steps=, the number of steps of the whole training, which"
                    " sets it; with a penalty, whose threshold depends on λ/ρ, give rho="
                )
            self.pull = total_pull(self.pull, steps)
            for layer in self.layers:
                layer.rate = self.pull / steps if layer.beta is None else None

    def layer_options(self) -> dict[str, Any]:
        """Add ρ, and the penalty or the sparsity."""
        kind = {"sparsity": self.sparsity} if self.penalty is None else {"penalty": self.penalty}
        return {"rho": self.rho, **super().layer_options(), **kind}

    def settings(self) -> dict[str, str]:
        """Add the interval, the step at which the zeros are fixed, and the total pull."""
        mine = {"interval": repr(self.interval), "fixed at": repr(self._retrains_from), "pull": repr(self.pull)}
        return {**super().settings(), **mine}

    def sparse(self, layer: Layer) -> Tensor:
        """Return u = prox(w + z/ρ), or its k largest groups."""
        shifted = self.point(layer)
        if layer.sparsity is None:
            return layer.prox(shifted)
        unit = Unit((layer,))
        count = min(round(layer.sparsity * unit.groups), unit.groups - 1)
        gone = unit.spread(smallest(unit.measured(shifted), count, unit.ranks))
        return shifted.masked_fill(gone[layer.name], 0)

    def point(self, layer: Layer) -> Tensor:
        """Return w + z/ρ, from which u is computed."""
        w, z = layer.w.detach(), layer.memory.get("z")
        return w if z is None else w.add(z, alpha=layer.prox_step)

    def prepare(self, layer: Layer, lr: float) -> None:
        """Start with u = prox(w), z = 0."""
        if "z" not in layer.memory:
            layer.memory |= {"u": self.sparse(layer), "z": torch.zeros_like(layer.w)}

    def before_step(self, layer: Layer, lr: float) -> None:
        """Pull w towards u − z/ρ: w ← w − ηρ(w − u + z/ρ)."""
        u, z = layer.memory["u"], layer.memory["z"]
        layer.w.lerp_(u.sub(z, alpha=layer.prox_step), self.pull_rate(layer, lr))

    def after_step(self, layer: Layer, lr: float) -> None:
        """Update u and z when the interval has passed: u ← prox(w + z/ρ), z ← z + ρ(w − u)."""
        if self.step % self.interval == 0:
            u = layer.memory["u"] = self.sparse(layer)
            layer.memory["z"].add_(layer.w - u, alpha=layer.beta or 1.0)

    def pull_rate(self, layer: Layer, lr: float) -> float:
        """Return ηρ, the fraction of the distance to u − z/ρ that w moves in a step."""
        return layer.pull(lr)

    def fixed_sparsity(self, step: int) -> float | None:
        """Return the sparsity of the constraint once retraining has begun."""
        begun = self._retrains_from is not None and step >= self._retrains_from
        return (self.sparsity or 0.0) if begun else None

    def beta_changed(self, layer: Layer, factor: float) -> None:
        """Keep z/ρ, the offset from w to the point from which u is computed."""
        if "z" in layer.memory:
            layer.memory["z"].mul_(factor)


def _is_count(steps: object) -> bool:
    return isinstance(steps, int) and not isinstance(steps, bool) and steps >= 1
