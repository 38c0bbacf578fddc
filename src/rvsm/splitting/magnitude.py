"""Gradual magnitude pruning."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from rvsm.groups import Grouping
from rvsm.splitting.base import Method
from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import Named
from rvsm.splitting.options import Overrides, as_budget


class Magnitude(Method):
    """Every few steps the smallest weights are set to zero and stay zero, along the cubic ramp of the budget.

    No penalty and no pull: the baseline that any method at one training's cost has to beat.

    Args:
        model: a module, or pairs of name and parameter.
        sparsity: the share of zeros over the sparsified weights at the end; needs ``steps``.
        steps: the number of optimizer steps of the whole training.
        budget: the target with all its options, instead of ``sparsity`` and ``steps``.
        groups: how weights are grouped, by name or object; see `rvsm.groups`.
        include: shell patterns of the parameters to sparsify.
        exclude: shell patterns of the parameters to leave alone.
        overrides: options of single layers.
        example_input: a batch, for a budget by flops, and to find the ends of the network, whose groups stay.

    Reference: Zhu & Gupta, "To prune, or not to prune", 2017.

    """

    name = "magnitude"

    def __init__(
        self,
        model: nn.Module | Named,
        *,
        sparsity: float | None = None,
        steps: int | None = None,
        budget: Budget | None = None,
        groups: Grouping | str = "element",
        include: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        overrides: Overrides | None = None,
        example_input: Tensor | tuple[Any, ...] | None = None,
    ) -> None:
        target = as_budget(sparsity, steps, budget)
        if target is None:
            raise ValueError("magnitude pruning needs sparsity= and steps=, or budget=")
        super().__init__(
            model,
            groups=groups,
            budget=target,
            include=include,
            exclude=exclude,
            overrides=overrides,
            overridable=["groups", "sparsity"],
            example_input=example_input,
        )

    def follow(self, budget: Budget) -> None:
        """Fix the support anew at each look, to the sparsity that the ramp has reached."""
        if budget.looks(self.step):
            self.fix_support(budget.zeros(self.acting, budget.target(self.step)))

    def sparse(self, layer: Layer) -> Tensor:
        """Return w, which is sparse already."""
        return layer.w.detach().clone()
