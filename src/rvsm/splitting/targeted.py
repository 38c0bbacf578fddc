"""Methods that accept a target sparsity."""

from typing import Any

from rvsm.splitting.budget import Budget
from rvsm.splitting.method import Method
from rvsm.splitting.options import as_budget


class Targeted(Method):
    """A method whose final sparsity can be chosen.

    Args:
        sparsity: the final fraction of zeros among the sparsified weights; requires ``steps``.
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
        """Add the sparsity of single layers, if there is a global target."""
        return {**super().layer_options(), **({} if self.budget is None else {"sparsity": None})}

    @property
    def target(self) -> Budget:
        """The budget, for methods that require one."""
        if self.budget is None:
            raise ValueError(f"{type(self).__name__} needs sparsity= and steps=, or budget=")
        return self.budget
