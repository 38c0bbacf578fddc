"""Methods that can be given a target sparsity."""

from typing import Any

from rvsm.splitting.budget import Budget
from rvsm.splitting.method import Method
from rvsm.splitting.options import as_budget


class Targeted(Method):
    """A method whose sparsity at the end can be chosen.

    Args:
        sparsity: the fraction of zeros over the sparsified weights at the end; needs ``steps``.
        steps: the number of optimizer steps of the whole training.
        budget: the target with all its options, instead of ``sparsity`` and ``steps``.

    """

    sparsity: float | None = None
    steps: int | None = None
    budget: Budget | None = None

    def __post_init__(self) -> None:
        self.budget = as_budget(self.sparsity, self.steps, self.budget)
        super().__post_init__()

    def layer_options(self) -> dict[str, Any]:
        """Return the target of single layers, where there is one for all."""
        return {**super().layer_options(), **({} if self.budget is None else {"sparsity": None})}

    @property
    def target(self) -> Budget:
        """The budget, for methods that cannot do without."""
        if self.budget is None:
            raise ValueError(f"{type(self).__name__} needs sparsity= and steps=, or budget=")
        return self.budget
