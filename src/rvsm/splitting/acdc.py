"""Alternating compressed and decompressed training."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.groups import Grouping
from rvsm.splitting.base import Method
from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import Named
from rvsm.splitting.options import Overrides, as_budget


class ACDC(Method):
    """Dense phases and sparse ones take turns; the last is sparse.

    The ramp of the budget is divided into ``cycles`` of equal length. Each begins dense; in its second half the
    smallest weights, to the whole target, are zero. After the ramp the zeros are chosen once more and stay. So the
    network is trained at its sparse self early and often, and has a way back each time. No penalty and no pull.

    Args:
        model: a module, or pairs of name and parameter.
        sparsity: the share of zeros over the sparsified weights at the end; needs ``steps``.
        steps: the number of optimizer steps of the whole training.
        budget: the target with all its options, instead of ``sparsity`` and ``steps``.
        cycles: how often a dense and a sparse phase follow each other in the ramp.
        groups: how weights are grouped, by name or object; see `rvsm.groups`.
        include: shell patterns of the parameters to sparsify.
        exclude: shell patterns of the parameters to leave alone.
        overrides: options of single layers.
        example_input: a batch, for a budget by flops.

    Reference: Peste et al., "AC/DC: Alternating Compressed/DeCompressed Training of Deep Neural Networks", 2021.

    """

    name = "acdc"

    def __init__(
        self,
        model: nn.Module | Named,
        *,
        sparsity: float | None = None,
        steps: int | None = None,
        budget: Budget | None = None,
        cycles: int = 5,
        groups: Grouping | str = "element",
        include: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        overrides: Overrides | None = None,
        example_input: Tensor | tuple[Any, ...] | None = None,
    ) -> None:
        target = as_budget(sparsity, steps, budget)
        if target is None:
            raise ValueError("AC/DC needs sparsity= and steps=, or budget=")
        if isinstance(cycles, bool) or not isinstance(cycles, int) or cycles < 1:
            raise ValueError(f"cycles must be an integer ≥ 1 but is {cycles!r}")
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
        self.cycles = cycles

    def settings(self) -> dict[str, str]:
        """Return the number of cycles, too."""
        return {**super().settings(), "cycles": repr(self.cycles)}

    def follow(self, budget: Budget) -> None:
        """Choose the zeros anew where a sparse phase begins, the last one included."""
        begins = self.step in (0, budget.ramp_steps) or not self._compressed(self.step - 1)
        if begins and self._compressed(self.step):
            self.fix_support(budget.zeros(self.acting, budget.sparsity))

    def after(self, optimizer: Optimizer) -> None:
        """Let the zeros go where a dense phase follows: now, since the next gradient belongs to it."""
        super().after(optimizer)
        if not self._finalized and not self._compressed(self.step):
            self.free_support()

    def sparse(self, layer: Layer) -> Tensor:
        """Return w, which is sparse in a sparse phase."""
        return layer.w.detach().clone()

    def _compressed(self, step: int) -> bool:
        """Return whether a step falls into a sparse phase."""
        assert self.budget is not None
        progress = self.budget.progress(step)
        return progress >= 1 or progress * self.cycles % 1 >= 1 / 2
