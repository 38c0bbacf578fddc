"""The Relaxed Variable Splitting Method."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.groups import Grouping
from rvsm.penalties import Penalty
from rvsm.penalties.base import require_positive
from rvsm.splitting.base import Method
from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer, require_dense_gradient
from rvsm.splitting.naming import Named
from rvsm.splitting.options import Overrides, as_budget
from rvsm.splitting.rates import lowered, require_no_overshoot, total_pull


class RVSM(Method):
    r"""Gradient descent on w, pulled towards a sparse copy u = prox(w).

    .. math::
        u^t &= \arg\min_u \lambda P(u) + \tfrac{\beta}{2}\|w^t - u\|^2 \\
        v^t &= u^t + \alpha(w^t - u^t) \\
        w^{t+1} &= w^t - \eta \nabla f(v^t) - \eta\beta(w^t - u^t)

    With α = 1 this is the paper's method: β(w − prox(w)) is the gradient of the Moreau envelope of λP with parameter
    1/β, so it is gradient descent on the loss plus that envelope, and ∇f vanishes at neither w nor u. With α = 0 its
    limits are critical points of the loss plus λP itself. With a target, α falls from 1 to 0 along the ramp, so the
    network is trained more and more as its sparse self.

    The pull is made on w before the optimizer's step, with the gradient already computed, and so acts outside momentum
    and adaptive scaling, as AdamW's weight decay does. Between two steps the model holds v. Where α < 1, the gradient
    of a weight that u leaves out is limited so that no step lifts it by more than the threshold; see `temper`.

    Args:
        model: a module, or pairs of name and parameter.
        penalty: a penalty with its λ, or the name of one whose λ a target sparsity sets.
        beta: the relaxation β; with a target it may be left out, and ``pull`` sets it.
        sparsity: the share of zeros over the sparsified weights at the end; needs ``steps``.
        steps: the number of optimizer steps of the whole training.
        budget: the target with all its options, instead of ``sparsity`` and ``steps``.
        pull: sets β = pull/(η₀·steps), η₀ being the largest learning rate of the parameter group so far; so the total
            pull Σηβ is about this number whatever the optimizer; with another one β begins anew. 100 by default, which
            lies between the paper's 33 (Table 1) and 264 (Table 2), or a quarter of the steps if that is less.
        gradient: where the gradient is taken. "w" is the paper's method, α = 1; "u" is α = 0, the straight-through
            form; "moving" goes from w to u along the ramp of a target; "auto" is "moving" with a target and the order
            of the proof, otherwise "w".
        order: "proof" thresholds the present w, as the proof of convergence does, and keeps no state; "printed" uses
            the u of the step before, as Algorithm 1 is printed, and can cycle for ever.
        decoupled: False adds β(w − u) to the gradient instead, where momentum and adaptive scaling see it.
        groups: how weights are grouped, by name or object; see `rvsm.groups`.
        include: shell patterns of the parameters to sparsify.
        exclude: shell patterns of the parameters to leave alone.
        overrides: options of single layers, as {"features.0.*": {"beta": 0.1}}.
        example_input: a batch, for a budget by flops, and to find the ends of the network, whose groups stay.

    Example:
        >>> import torch, rvsm
        >>> _ = torch.manual_seed(0)
        >>> model, x = torch.nn.Linear(100, 10), torch.randn(32, 100)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> sparsifier = rvsm.RVSM(model, penalty="l0", sparsity=0.95, steps=50).attach(optimizer)
        >>> for _ in range(50):
        ...     optimizer.zero_grad()
        ...     model(x).square().mean().backward()
        ...     loss = optimizer.step()
        >>> sparsifier.finalize()
        >>> int((model.weight == 0).sum())
        950

    Reference: Dinh & Xin, "Convergence of a Relaxed Variable Splitting Method for Learning Sparse Neural Networks via
    ℓ1, ℓ0, and Transformed-ℓ1 Penalties", Algorithm 1.

    """

    name = "rvsm"

    def __init__(
        self,
        model: nn.Module | Named,
        penalty: Penalty | str,
        *,
        beta: float | None = None,
        sparsity: float | None = None,
        steps: int | None = None,
        budget: Budget | None = None,
        pull: float | None = None,
        gradient: Literal["auto", "w", "u", "moving"] = "auto",
        order: Literal["proof", "printed"] = "proof",
        decoupled: bool = True,
        groups: Grouping | str = "element",
        include: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        overrides: Overrides | None = None,
        example_input: Tensor | tuple[Any, ...] | None = None,
    ) -> None:
        target = as_budget(sparsity, steps, budget)
        if order not in ("proof", "printed"):
            raise ValueError(f"unknown order {order!r}; choose from proof, printed")
        if gradient == "auto":
            gradient = "w" if target is None or order == "printed" else "moving"
        _require_gradient(gradient, order, target)
        if pull is not None:
            pull = require_positive("pull", pull)
            if target is None or beta is not None:
                raise ValueError("pull= sets β for a target sparsity: give it with sparsity= and without beta=")
        rate = 0.0
        if target is not None and beta is None:
            pull = total_pull(pull, target.steps)
            rate = pull / target.steps
        if penalty is None:
            raise TypeError("penalty is missing: give an object such as rvsm.L0(lam=1e-6), or a name with sparsity=")
        super().__init__(
            model,
            penalty=penalty,
            beta=beta,
            groups=groups,
            budget=target,
            include=include,
            exclude=exclude,
            overrides=overrides,
            overridable=["penalty", "beta", "groups", *(["sparsity"] if target else [])],
            example_input=example_input,
        )
        self.order, self.decoupled, self.pull, self.gradient = order, decoupled, pull, gradient
        self._largest_rate = rate  # of the layers whose β is left to the total pull: ηβ at the largest η
        self._by_pull = {layer.name for layer in self.layers if layer.beta is None}
        for layer in self.layers:
            if layer.beta is not None:
                layer.beta = require_positive("beta", layer.beta)
            elif target is None:
                raise ValueError(f"beta is missing for {layer.name!r}: give beta=, or sparsity= and steps=")

    def settings(self) -> dict[str, str]:
        """Return the budget, the order, where the gradient is taken, whether the pull is decoupled, and its total."""
        mine = {
            "order": self.order,
            "gradient": self.gradient,
            "decoupled": repr(self.decoupled),
            "pull": repr(self.pull),
        }
        return {**super().settings(), **mine}

    def begin(self, optimizer: Optimizer, *, another: bool) -> None:
        """Forget the β that the total pull set for another optimizer, whose learning rates were others."""
        super().begin(optimizer, another=another)
        for layer in self.layers:
            if another and layer.name in self._by_pull:
                self._change_beta(layer, None)

    def prepare(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Set β from the total pull, where it is not given, whenever the learning rate reaches a new height."""
        if self.alpha < 1:
            for layer, lr in moving:
                self.temper(layer, lr)
        for layer, lr in moving:
            if not self.decoupled:
                require_dense_gradient(layer.name, layer.parameter.grad)
            beta = lowered(layer.beta, self._largest_rate, lr) if layer.name in self._by_pull else layer.beta
            if beta != layer.beta:
                self._change_beta(layer, beta)

    def before_step(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Pull w towards u by ηβ(w − u)."""
        for layer, lr in moving:
            require_no_overshoot(lr, self._beta(layer), layer.name)
        for layer, lr in moving:
            if self.order == "printed":
                self._pull_to(layer, self._u_of_last_step(layer), lr)
            elif not self.decoupled:
                self._pull_to(layer, self.sparse(layer), lr)
            elif layer.penalty is not None:
                # The usual case, w ← w + ηβ(prox(w) − w), in blocks so that u is never larger than the cache.
                for w in layer.blocks():
                    w.lerp_(layer.prox(w, self.prox_step(layer)), lr * self._beta(layer))

    def sparse(self, layer: Layer) -> Tensor:
        """Return u = prox(w), in both orders."""
        return layer.prox(layer.w.detach(), self.prox_step(layer))

    @property
    def alpha(self) -> float:
        """1 at w, 0 at u; falls with the progress of the ramp in between."""
        if self.gradient == "moving" and self.budget is not None:
            return 1 - self.budget.progress(self.step)
        return float(self.gradient == "w")

    def prox_step(self, layer: Layer) -> float:
        """Return 1/β."""
        return 1 / self._beta(layer)

    def temper(self, layer: Layer, lr: float) -> None:
        """Limit the gradient of weights that u leaves out to t(1 − μ)/η, t the threshold and μ the momentum.

        So no gradient lifts such a weight by more than the threshold. At rest none is as large: there it is β|w|(1 − μ)
        with |w| ≤ t and ηβ < 1. But where u has emptied a whole channel before a batch norm, the norm divides by √ε
        instead of a deviation, and weights that have no part in the network get gradients hundreds of times as large
        as those that have. They would leap far above every threshold, and a common ranking would give them the places
        of whole layers.
        """
        gradient = layer.parameter.grad
        if layer.penalty is None or gradient is None or gradient.layout != torch.strided or lr <= 0:
            return
        momentum = float(self.group(layer).get("momentum", 0.0))
        limit = layer.penalty.threshold(self.prox_step(layer)) * (1 - momentum) / lr * self.gradient_scale
        unused = self.sparse(layer) == 0
        gradient.copy_(torch.where(unused, gradient.clamp(-limit, limit), gradient))

    def _u_of_last_step(self, layer: Layer) -> Tensor:
        """Return the u that the step before left (the first step has its own), and leave the present one."""
        following = self.sparse(layer)
        u = self.memory.setdefault("u", {}).get(layer.name, following)
        self.memory["u"][layer.name] = following
        return u

    def _pull_to(self, layer: Layer, u: Tensor, lr: float) -> None:
        if self.decoupled:
            layer.w.lerp_(u, lr * self._beta(layer))
        elif layer.parameter.grad is not None:
            uphill = bool(self.group(layer).get("maximize"))  # then the optimizer adds the gradient
            layer.parameter.grad.add_(
                u - layer.w if uphill else layer.w - u, alpha=self._beta(layer) * self.gradient_scale
            )

    def _change_beta(self, layer: Layer, beta: float | None) -> None:
        """Change β and keep the threshold: λ follows."""
        t = None if layer.penalty is None else layer.penalty.threshold(self.prox_step(layer))
        layer.beta = beta
        if t is not None and layer.penalty is not None:
            layer.penalty = layer.penalty.with_threshold(t, self.prox_step(layer))

    def _beta(self, layer: Layer) -> float:
        # Unknown until the first step with a learning rate above zero; until then nothing is pulled, and any will do.
        return 1.0 if layer.beta is None else layer.beta


def _require_gradient(gradient: str, order: str, target: Budget | None) -> None:
    if gradient not in ("w", "u", "moving"):
        raise ValueError(f"unknown gradient {gradient!r}; choose from auto, w, u, moving")
    if gradient == "moving" and target is None:
        raise ValueError(
            "gradient='moving' goes from w to u along the ramp of a target: give sparsity= and steps=, or choose 'w',"
            " the paper's method, or 'u'"
        )
    if gradient != "w" and order == "printed":
        raise ValueError(
            "order='printed' is the algorithm as the paper prints it, with the gradient at w, but gradient is"
            f" {gradient!r}; leave one of the two out"
        )
