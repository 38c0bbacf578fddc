"""A method and its options, chosen before there is a model."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any

from torch import nn

from rvsm.splitting import METHODS, Budget, Method
from rvsm.splitting.budget import require_share


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method without its model and without the number of steps, which come from a trainer.

    Args:
        method: the name of a method.
        sparsity: the final fraction of zeros; None for a penalty with its λ.
        budget: further options of the target, such as {"by": "flops"}.
        options: all other arguments of the method.

    >>> recipe = Recipe(method="rvsm", sparsity=0.9, budget={"scope": "layer"}, options={"exclude": ["bias"]})
    >>> recipe.build(nn.Linear(10, 10), steps=100).budget
    Budget(sparsity=0.9, steps=100, ramp=0.5, heal=0.3, scope='layer', by='weights', normalize=False, floor=None, every=None)

    """  # noqa: E501 - the line of a doctest

    method: str
    sparsity: float | None
    budget: Mapping[str, Any] | None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}; choose from {', '.join(METHODS)}")
        known = self._known()
        others = known - {"sparsity", "steps", "budget"}
        if unknown := sorted(self.options.keys() - others):
            raise TypeError(f"{self.method} has no option {unknown[0]!r}; it has {', '.join(sorted(others))}")
        if self.budget is not None:
            self._check_budget(known)
        if self.sparsity is not None:
            require_share(self.sparsity)
            if "sparsity" not in known:
                raise ValueError(f"{self.method} takes no sparsity; give it a penalty with its λ")
        elif "penalty" not in self.options:
            raise ValueError("give sparsity=, the final fraction of zeros, or penalty= with its λ")

    def build(self, model: nn.Module, steps: int | None) -> Method:
        """Return the method for a model and a training with this number of steps."""
        known = self._known()
        derived: dict[str, Any] = {}
        if self.sparsity is not None and self.budget is not None:
            derived["budget"] = Budget(self.sparsity, **{"steps": steps, **self.budget})
        elif self.sparsity is not None:
            derived |= {"sparsity": self.sparsity, "steps": steps}
        if self.method == "rvsm" and "penalty" not in self.options:
            derived["penalty"] = "l0"
        method: type[Any] = METHODS[self.method]
        built: Method = method(model, **{k: v for k, v in derived.items() if k in known}, **self.options)
        return built

    def _check_budget(self, known: set[str]) -> None:
        """Raise unless the further options of the target are valid."""
        options = [field.name for field in fields(Budget) if field.name not in ("sparsity", "steps")]
        if not isinstance(self.budget, Mapping) or not self.budget.keys() <= set(options):
            raise TypeError(
                "budget must be a dict of further options of the target, such as {'by': 'flops'}, without the number of"
                f" steps, which the trainer knows; it can have {', '.join(options)} but is {self.budget!r}"
            )
        if self.sparsity is None:
            raise ValueError("budget= has further options of a target: give sparsity=, too")
        if "budget" not in known:
            raise ValueError(f"{self.method} has no budget; omit budget=")
        Budget(self.sparsity, steps=1, **self.budget)  # makes the checks that are possible before training

    def _known(self) -> set[str]:
        return set(signature(METHODS[self.method]).parameters) - {"model"}
