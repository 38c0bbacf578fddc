"""The forms in which users can give a penalty, a grouping, a target and the options of single layers."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from rvsm.groups import GROUPS, Grouping
from rvsm.metrics import multiplications
from rvsm.penalties import PENALTIES, Penalty
from rvsm.penalties.base import require_positive
from rvsm.splitting.budget import Budget, require_fraction
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import matches
from rvsm.splitting.shards import drop_gathered

Overrides = Mapping[str, Mapping[str, Any]]
"""Options of single layers: a shell pattern on parameter names → the options that the method knows."""


def as_penalty(penalty: Penalty | str, *, named: bool) -> Penalty:
    """Return a penalty, given as an object or, if ``named`` is true, by its name in the registry.

    A penalty given by name has λ = 1, which a budget replaces; without a budget it would stay 1.
    """
    if isinstance(penalty, str):
        if penalty not in PENALTIES:
            raise ValueError(f"unknown penalty {penalty!r}; choose from {', '.join(PENALTIES)}")
        if not named:
            example = f"{PENALTIES[penalty].__name__}(lam=...)"
            raise ValueError(f"penalty {penalty!r} needs a λ, because no target sparsity sets it: write {example}")
        return PENALTIES[penalty](lam=1.0)
    if penalty is None:
        raise TypeError("penalty is missing: give an object such as rvsm.L1(lam=1e-4)" + ", or a name" * named)
    if not isinstance(penalty, Penalty):
        raise TypeError(f"penalty must be an object such as rvsm.L0(lam=1e-6), or a name, but is {penalty!r}")
    return penalty


def as_groups(groups: Grouping | str) -> Grouping:
    """Return a grouping, given as an object or by its name in the registry."""
    if isinstance(groups, str):
        if groups not in GROUPS:
            raise ValueError(f"unknown groups {groups!r}; choose from {', '.join(GROUPS)}")
        return GROUPS[groups]()
    if not isinstance(groups, Grouping):
        raise TypeError(f"groups must be an object such as rvsm.Filter(), or a name, but is {groups!r}")
    return groups


def as_budget(sparsity: float | None, steps: int | None, budget: Budget | None) -> Budget | None:
    """Return the target, given by its two main numbers or as a budget; None if there is none."""
    if budget is not None:
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be an rvsm.Budget(sparsity, steps) but is {budget!r}")
        if sparsity is not None or steps is not None:
            raise ValueError("give either budget= or sparsity= and steps=, not both")
        return budget
    if sparsity is None:
        if steps is not None:
            raise ValueError("steps= belongs to a target: give sparsity=, too, or omit steps=")
        return None
    if steps is None:
        raise ValueError("sparsity= needs steps=, the number of optimizer steps of the whole training")
    return Budget(sparsity=sparsity, steps=steps)


def total_pull(pull: float | None, steps: int) -> float:
    """Return the total pull Σηβ of a training; by default 100, or a quarter of the steps if that is less.

    >>> total_pull(None, 1000), total_pull(None, 100), total_pull(30, 100)
    (100.0, 25.0, 30.0)
    """
    if pull is None:
        return min(100.0, steps / 4)
    if (pull := require_positive("pull", pull)) >= steps:
        raise ValueError(
            f"a total pull of {pull:g} needs more than {pull:g} steps but the training has {steps}; give more steps,"
            " or a smaller pull="
        )
    return pull


def give_options(
    layers: Sequence[Layer], options: Mapping[str, Any], overrides: Overrides | None, *, named: bool
) -> None:
    """Give all layers the options of their method, then apply overrides; later patterns win.

    Only options that the method has can be overridden; others are rejected.
    """
    overrides = {} if overrides is None else overrides
    if not (isinstance(overrides, Mapping) and all(isinstance(own, Mapping) for own in overrides.values())):
        raise TypeError(f"overrides must be like {{'fc.*': {{'{next(iter(options))}': ...}}}} but is {overrides!r}")
    for layer in layers:
        _give(layer, options, named=named)
    by_name = {layer.name: layer for layer in layers}
    for name, pattern in matches(overrides, by_name):
        own = overrides[pattern]
        if unknown := sorted(set(own) - set(options)):
            raise ValueError(
                f"overrides: unknown option {unknown[0]!r} for {pattern!r}; choose from {', '.join(options)}"
            )
        _give(by_name[name], own, named=named)
        by_name[name].named |= "groups" in own


def _give(layer: Layer, options: Mapping[str, Any], *, named: bool) -> None:
    for option, value in options.items():
        match option:
            case "penalty":
                layer.penalty = layer.template = as_penalty(value, named=named)
            case "groups":
                layer.groups = as_groups(value)
            case "beta" | "rho":
                layer.beta = None if value is None else require_positive(option, value)
            case "sparsity":
                layer.sparsity = None if value is None else require_fraction(value, f" for {layer.name!r}")
            case _:
                raise ValueError(f"layers have no option {option!r}; choose from penalty, groups, beta, rho, sparsity")


def count_multiplications(
    layers: Sequence[Layer], model: nn.Module | None, example_input: Tensor | tuple[Any, ...] | None
) -> None:
    """Set how often the weights of each layer are multiplied, for a budget by flops."""
    if model is None or example_input is None:
        raise ValueError("a budget by flops needs the module and example_input=, a batch to count multiplications with")
    counts = multiplications(model, example_input)
    drop_gathered(model)  # an optimizer that is made now must find the parameters
    for layer in layers:
        if layer.coupling is not None and layer.parameter.dim() == 1:
            layer.multiplications = 0.0  # biases and norms, which follow their channel
            continue
        if not counts.get(layer.name):
            raise ValueError(
                f"the forward pass over example_input does not use {layer.name!r} in a layer whose multiplications"
                " can be counted; exclude it, or use by='weights'"
            )
        layer.multiplications = counts[layer.name]
