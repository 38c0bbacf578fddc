"""What a method is: its arguments, its sparse copy u, and what happens before and after a step."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import field
from typing import Any, ClassVar

from torch import Tensor, nn

from rvsm.groups import Grouping
from rvsm.splitting.arguments import Arguments
from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer, Layers
from rvsm.splitting.naming import Named
from rvsm.splitting.options import Overrides


class Algorithm(Arguments, ABC):
    """The part of a method that differs from method to method; `Method` is all the rest.

    Only `sparse` must be written. The others do nothing, or the usual thing. What an algorithm keeps between steps
    belongs in the ``memory`` of each layer.

    Args:
        model: a module, or pairs of name and parameter.
        groups: how weights are grouped, by name or object; see `rvsm.groups`.
        include: shell patterns of the parameters to sparsify.
        exclude: shell patterns of the parameters to leave alone.
        overrides: options of single layers, as {"features.0.*": {"groups": "filter"}}.
        example_input: a batch, for a budget by flops, and to find the ends of the network, whose groups stay.

    Attributes:
        layers: all selected weights, in one list.
        budget: the target sparsity, if there is one.
        step: the number of optimizer steps done so far.
        gradient_scale: the factor by which the present gradients are scaled.

    """

    name: ClassVar[str]
    """The name in the registry and in saved states."""

    keeps: ClassVar[tuple[str, ...]] = ()
    """The kinds of tensors in the ``memory`` of a layer."""

    model: nn.Module | Named = field(kw_only=False)
    groups: Grouping | str = "element"
    include: Iterable[str] | None = None
    exclude: Iterable[str] | None = None
    overrides: Overrides | None = None
    example_input: Tensor | tuple[Any, ...] | None = None
    layers: Layers = field(init=False)
    budget: Budget | None = field(default=None, init=False)
    step: int = field(default=0, init=False)
    gradient_scale: float = field(default=1.0, init=False)

    # Before there is a training

    def layer_options(self) -> dict[str, Any]:
        """Return the options of the layers, by the names under which ``overrides`` may change them for some."""
        return {"groups": self.groups}

    def settings(self) -> dict[str, str]:
        """Return the options that a saved state must share, besides those of each layer."""
        return {"budget": repr(self.budget)}

    # The step

    @abstractmethod
    def sparse(self, layer: Layer) -> Tensor:
        """Return the sparse copy u of a layer at its present w."""

    @property
    def alpha(self) -> float:
        """Where the gradient of the next step is taken: at v = u + α(w − u). At 1 that is w."""
        return 1.0

    def prepare(self, layer: Layer, lr: float) -> None:
        """Get ready for a step of a layer, and raise if it cannot be done: no weight has moved yet."""

    def before_step(self, layer: Layer, lr: float) -> None:
        """Act on a layer that has a gradient, given its learning rate, before the optimizer's step."""

    def after_step(self, layer: Layer, lr: float) -> None:
        """Act on such a layer after the optimizer's step."""

    # What a few methods have in another way

    def fixed_sparsity(self, step: int) -> float | None:
        """Return the sparsity at which zeros are fixed during a step; None while all weights are free.

        Without a budget the zeros are those of u, however many there are.
        """
        return self.budget.sparsity if self.budget is not None and self.budget.phase(step) == "heal" else None

    def threshold(self, layer: Layer) -> float:
        """Return the magnitude up to which weights of a layer are zero in u."""
        return layer.threshold

    def beta_changed(self, layer: Layer, factor: float) -> None:
        """Adapt what depends on β, which has changed by a factor; λ has followed, so the threshold is the same."""
