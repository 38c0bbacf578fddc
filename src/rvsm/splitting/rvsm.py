"""The Relaxed Variable Splitting Method."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from rvsm.groups import Grouping
from rvsm.penalties import Penalty
from rvsm.penalties.base import require_positive
from rvsm.splitting.base import Method
from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import Named
from rvsm.splitting.options import Overrides, as_budget, require_lam
from rvsm.splitting.rates import peak_learning_rates, relaxation, require_no_overshoot


class RVSM(Method):
    r"""Gradient descent on w, pulled towards a sparse copy u = prox(w).

    .. math::
        u^t &= \arg\min_u \lambda P(u) + \tfrac{\beta}{2}\|w^t - u\|^2 \\
        w^{t+1} &= w^t - \eta \nabla f(w^t) - \eta\beta(w^t - u^t)

    β(w − prox(w)) is the gradient of the Moreau envelope of λP with parameter 1/β, so this is gradient descent on the
    loss plus that envelope. The pull is made on w before the optimizer's step, with ∇f(w) already computed, and so acts
    outside momentum and adaptive scaling, as AdamW's weight decay does.

    Args:
        model: a module, or pairs of name and parameter.
        penalty: a penalty with its λ, or the name of one whose λ a target sparsity sets.
        beta: the relaxation β; with a target it may be left out, and ``pull`` sets it.
        sparsity: the share of zeros over the sparsified weights at the end; needs ``steps``.
        steps: the number of optimizer steps of the whole training.
        budget: the target with all its options, instead of ``sparsity`` and ``steps``.
        pull: the total pull η₀·β·steps, η₀ being a parameter group's peak learning rate: 6 by default if the budget
            heals, else 30.
        order: "proof" thresholds the present w, as the proof of convergence does, and keeps no state; "printed" uses
        the
            u of the step before, as Algorithm 1 is printed, and can cycle for ever.
        decoupled: False adds β(w − u) to the gradient instead, where momentum and adaptive scaling see it.
        groups: how weights are grouped, by name or object; see `rvsm.groups`.
        include: shell patterns of the parameters to sparsify.
        exclude: shell patterns of the parameters to leave alone.
        overrides: options of single layers, as {"features.0.*": {"beta": 0.1}}.
        example_input: a batch, for a budget by flops.

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
        if target is None:
            require_lam(penalty)
        if target is None and pull is not None:
            raise ValueError("pull= sets β for a target sparsity; without one, give beta=")
        if pull is not None:
            require_positive("pull", pull)
        super().__init__(
            model,
            penalty=penalty,
            beta=beta,
            groups=groups,
            budget=target,
            include=include,
            exclude=exclude,
            overrides=overrides,
            example_input=example_input,
        )
        self.order, self.decoupled = order, decoupled
        self._pull = pull
        for layer in self.layers:
            if layer.beta is not None:
                require_positive("beta", layer.beta)
            elif target is None:
                raise ValueError(f"beta is missing for {layer.name!r}: give beta=, or sparsity= and steps=")

    def prepare(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Set β where it was left to the total pull, and make sure that no step overshoots."""
        if self.budget is not None and self._optimizer is not None and any(layer.beta is None for layer in self.held):
            peaks = peak_learning_rates(self._optimizer)
            total = self._pull or (6.0 if self.budget.heal > 0 else 30.0)
            for layer in self.held:
                if layer.beta is None:
                    layer.beta = relaxation(total, peaks[layer.param_group or 0], self.budget.steps)
        for layer, lr in moving:
            require_no_overshoot(lr, self._beta(layer), layer.name)

    def before_step(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Pull w towards u by ηβ(w − u)."""
        for layer, lr in moving:
            if self.order == "printed":
                u = self._u_of_last_step(layer)
                self._pull_to(layer, u, lr)
            elif not self.decoupled:
                self._pull_to(layer, self.sparse(layer), lr)
            elif layer.penalty is not None:
                # The usual case, w ← w + ηβ(prox(w) − w), in blocks so that u is never larger than the cache.
                for w in layer.blocks():
                    w.lerp_(layer.prox(w, self.prox_step(layer)), lr * self._beta(layer))

    def sparse(self, layer: Layer) -> Tensor:
        """Return u = prox(w), in both orders."""
        return layer.prox(layer.w.detach(), self.prox_step(layer))

    def prox_step(self, layer: Layer) -> float:
        """Return 1/β."""
        return 1 / self._beta(layer)

    def _u_of_last_step(self, layer: Layer) -> Tensor:
        """Return the u that the step before left (the first step has its own), and leave the present one."""
        following = self.sparse(layer)
        u = self.memory.setdefault("u", {}).get(layer.name, following)
        self.memory["u"][layer.name] = following
        return u

    def _pull_to(self, layer: Layer, u: Tensor, lr: float) -> None:
        if self.decoupled:
            layer.w.lerp_(u, lr * self._beta(layer))
        else:
            assert layer.w.grad is not None
            layer.w.grad.add_(layer.w - u, alpha=self._beta(layer) * self.gradient_scale)

    def _beta(self, layer: Layer) -> float:
        # Before the first step β may be unknown; then no penalty is active yet, and any β gives the same u.
        return 1.0 if layer.beta is None else layer.beta
