"""What a user may write for a penalty, a grouping, a target and the options of single layers."""

from collections.abc import Mapping, Sequence
from typing import Any

from rvsm.groups import GROUPS, Grouping
from rvsm.penalties import PENALTIES, Penalty
from rvsm.splitting.budget import Budget, require_share
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import match

Overrides = Mapping[str, Mapping[str, Any]]
"""Options of single layers: a shell pattern on parameter names → some of penalty, beta, groups, sparsity."""

_OVERRIDABLE = ("penalty", "beta", "groups", "sparsity")


def as_penalty(penalty: Penalty | str | None) -> Penalty | None:
    """Return a penalty from itself or from its name in the registry (with λ = 1, which a budget replaces)."""
    if isinstance(penalty, str):
        if penalty not in PENALTIES:
            raise ValueError(f"unknown penalty {penalty!r}; choose from {', '.join(PENALTIES)}")
        return PENALTIES[penalty](lam=1.0)
    if penalty is not None and not isinstance(penalty, Penalty):
        raise TypeError(f"penalty must be an object such as rvsm.L0(lam=1e-6), or a name, but is {penalty!r}")
    return penalty


def require_lam(penalty: Penalty | str | None) -> None:
    """Raise if a penalty is given by name where nothing sets its λ."""
    if isinstance(penalty, str):
        known = as_penalty(penalty)
        raise ValueError(f"penalty {penalty!r} needs a λ here: write rvsm.{type(known).__name__}(lam=...)")


def as_groups(groups: Grouping | str) -> Grouping:
    """Return a grouping from itself or from its name in the registry."""
    if isinstance(groups, str):
        if groups not in GROUPS:
            raise ValueError(f"unknown groups {groups!r}; choose from {', '.join(GROUPS)}")
        return GROUPS[groups]()
    if not isinstance(groups, Grouping):
        raise TypeError(f"groups must be an object such as rvsm.Filter(), or a name, but is {groups!r}")
    return groups


def as_budget(sparsity: float | None, steps: int | None, budget: Budget | None, *, ramp: float = 0.5) -> Budget | None:
    """Return the target that a user gave by its two main numbers, or as a whole; None if there is none."""
    if budget is not None:
        if sparsity is not None or steps is not None:
            raise ValueError("give either budget= or sparsity= and steps=, not both")
        return budget
    if sparsity is None:
        if steps is not None:
            raise ValueError("steps= belongs to a target: give sparsity= too, or leave steps out")
        return None
    if steps is None:
        raise ValueError("sparsity= needs steps=, the number of optimizer steps of the whole training")
    return Budget(sparsity=sparsity, steps=steps, ramp=ramp)


def override(layers: Sequence[Layer], overrides: Overrides) -> None:
    """Give layers their own options; where several patterns match, later ones win."""
    by_name = {layer.name: layer for layer in layers}
    for name, pattern in match(overrides, by_name):
        options, layer = overrides[pattern], by_name[name]
        if unknown := sorted(set(options) - set(_OVERRIDABLE)):
            raise ValueError(
                f"overrides: unknown option {unknown[0]!r} for {pattern!r}; choose from {', '.join(_OVERRIDABLE)}"
            )
        if "penalty" in options:
            layer.penalty = as_penalty(options["penalty"])
        layer.groups = as_groups(options.get("groups", layer.groups))
        layer.beta = options.get("beta", layer.beta)
        layer.sparsity = options.get("sparsity", layer.sparsity)
        if layer.sparsity is not None:
            require_share(layer.sparsity, f" for {name!r}")
