"""What a user may write for a penalty, a grouping, a target and the options of single layers."""

from collections.abc import Mapping, Sequence
from typing import Any

from rvsm.groups import GROUPS, Grouping
from rvsm.penalties import PENALTIES, Penalty
from rvsm.splitting.budget import Budget, require_share
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import match

Overrides = Mapping[str, Mapping[str, Any]]
"""Options of single layers: a shell pattern on parameter names → the options that the method knows."""


def as_penalty(penalty: Penalty | str, *, named: bool) -> Penalty:
    """Return a penalty from itself, or from its name in the registry where ``named`` is allowed.

    A penalty by name has λ = 1, which a budget replaces; without a budget nothing would.
    """
    if isinstance(penalty, str):
        if penalty not in PENALTIES:
            raise ValueError(f"unknown penalty {penalty!r}; choose from {', '.join(PENALTIES)}")
        if not named:
            example = f"{PENALTIES[penalty].__name__}(lam=...)"
            raise ValueError(f"penalty {penalty!r} needs a λ here, where no sparsity sets it: write {example}")
        return PENALTIES[penalty](lam=1.0)
    if not isinstance(penalty, Penalty):
        raise TypeError(f"penalty must be an object such as rvsm.L0(lam=1e-6), or a name, but is {penalty!r}")
    return penalty


def as_groups(groups: Grouping | str) -> Grouping:
    """Return a grouping from itself or from its name in the registry."""
    if isinstance(groups, str):
        if groups not in GROUPS:
            raise ValueError(f"unknown groups {groups!r}; choose from {', '.join(GROUPS)}")
        return GROUPS[groups]()
    if not isinstance(groups, Grouping):
        raise TypeError(f"groups must be an object such as rvsm.Filter(), or a name, but is {groups!r}")
    return groups


def as_budget(sparsity: float | None, steps: int | None, budget: Budget | None) -> Budget | None:
    """Return the target that a user gave by its two main numbers, or as a whole; None if there is none."""
    if budget is not None:
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a rvsm.Budget(sparsity, steps) but is {budget!r}")
        if sparsity is not None or steps is not None:
            raise ValueError("give either budget= or sparsity= and steps=, not both")
        return budget
    if sparsity is None:
        if steps is not None:
            raise ValueError("steps= belongs to a target: give sparsity= too, or leave steps out")
        return None
    if steps is None:
        raise ValueError("sparsity= needs steps=, the number of optimizer steps of the whole training")
    return Budget(sparsity=sparsity, steps=steps)


def override(layers: Sequence[Layer], overrides: Overrides, known: Sequence[str], *, named: bool) -> None:
    """Give layers their own options, of those that the method knows; where several patterns match, later ones win."""
    if not (isinstance(overrides, Mapping) and all(isinstance(options, Mapping) for options in overrides.values())):
        raise TypeError(f"overrides must be like {{'fc.*': {{'{known[0]}': ...}}}} but is {overrides!r}")
    by_name = {layer.name: layer for layer in layers}
    for name, pattern in match(overrides, by_name):
        options, layer = overrides[pattern], by_name[name]
        if unknown := sorted(set(options) - set(known)):
            raise ValueError(
                f"overrides: unknown option {unknown[0]!r} for {pattern!r}; choose from {', '.join(known)}"
            )
        if "penalty" in options:
            layer.penalty = as_penalty(options["penalty"], named=named)
        if "groups" in options:
            layer.groups, layer.named = as_groups(options["groups"]), True
        layer.beta = options.get("beta", options.get("rho", layer.beta))
        if "sparsity" in options:
            layer.sparsity = require_share(options["sparsity"], f" for {name!r}")
