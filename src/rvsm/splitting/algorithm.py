"""What defines a method: its arguments, its sparse copy u, and its actions before and after a step."""

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
    """The part that differs between methods; `Method` is everything else.

    Only `sparse` is required. The other methods have defaults that do nothing or the usual thing. Tensors that an
    algorithm keeps between steps belong in the ``memory`` of each layer.

    Args:
        model: a module, or pairs of name and parameter.
        groups: how weights are grouped, by name or object; see `rvsm.groups`.
        include: shell patterns of the parameters to sparsify.
        exclude: shell patterns of the parameters to leave dense.
        overrides: options of single layers, such as {"features.0.*": {"groups": "filter"}}.
        example_input: a batch, used for a budget by flops and to find the ends of the network, whose groups are kept.

    Attributes:
        layers: all selected weights, as one list.
        budget: the target sparsity, if there is one.
        step: the number of optimizer steps done so far.
        gradient_scale: the factor by which the current gradients are scaled.

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

    # Before training

    def layer_options(self) -> dict[str, Any]:
        """Return the options of the layers, by the names that ``overrides`` uses to change them for single layers."""
        return {"groups": self.groups}

    def settings(self) -> dict[str, str]:
        """Return the options that a saved state must have in common, in addition to those of each layer."""
        return {"budget": repr(self.budget)}

    # The step

    @abstractmethod
    def sparse(self, layer: Layer) -> Tensor:
        """Return the sparse copy u of a layer at its current w."""

    def point(self, layer: Layer) -> Tensor:
        """Return the weights from which u is computed, at which groups with parts elsewhere are measured: w."""
        return layer.w.detach()

    @property
    def alpha(self) -> float:
        """The α of v = u + α(w − u), where the gradient of the next step is taken; 1 means at w."""
        return 1.0

    def prepare(self, layer: Layer, lr: float) -> None:
        """Prepare a layer for a step, and raise if the step is impossible; no weight has changed yet."""

    def before_step(self, layer: Layer, lr: float) -> None:
        """Act on a layer that has a gradient, given its learning rate, before the optimizer's step."""

    def after_step(self, layer: Layer, lr: float) -> None:
        """Act on a layer that has a gradient, given its learning rate, after the optimizer's step."""

    # What a few methods do differently

    def fixed_sparsity(self, step: int) -> float | None:
        """Return the sparsity at which zeros are fixed during a step; None while all weights are free.

        Without a budget, the zeros of u are fixed, however many there are.
        """
        return self.budget.goal if self.budget is not None and self.budget.phase(step) == "heal" else None

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of tensors that a checkpoint can contain with these options; "w" is w while there is v."""
        return self.keeps if type(self).alpha is Algorithm.alpha else (*self.keeps, "w")

    def threshold(self, layer: Layer) -> float:
        """Return the magnitude up to which weights of a layer are zero in u."""
        return layer.threshold

    def beta_changed(self, layer: Layer, factor: float) -> None:
        """Adapt values that depend on β, which has changed by a factor; λ has changed, too, so the threshold stays."""
