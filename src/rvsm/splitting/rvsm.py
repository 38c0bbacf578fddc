"""The Relaxed Variable Splitting Method."""

from dataclasses import field
from typing import Any, Literal

import torch
from torch import Tensor

from rvsm.penalties import Penalty
from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer
from rvsm.splitting.options import total_pull
from rvsm.splitting.targeted import Targeted
from rvsm.splitting.weights import require_dense_gradient


class RVSM(Targeted):
    r"""Gradient descent on w, pulled towards a sparse copy u = prox(w).

    .. math::
        u^t &= \arg\min_u \lambda P(u) + \tfrac{\beta}{2}\|w^t - u\|^2 \\
        v^t &= u^t + \alpha(w^t - u^t) \\
        w^{t+1} &= w^t - \eta \nabla f(v^t) - \eta\beta(w^t - u^t)

    With α = 1 this is the paper's method. β(w − prox(w)) is the gradient of the Moreau envelope of λP with parameter
    1/β, so the method is gradient descent on the loss plus that envelope, and ∇f vanishes at neither w nor u. With
    α = 0, limits are critical points of the loss plus λP itself. With a target, α is what is still missing of it: it
    decreases from 1 to 0 along the ramp as the zeros appear, so the trained network moves from dense to sparse.

    The pull acts on w before the optimizer's step, when the gradient has already been computed. It therefore acts
    outside momentum and adaptive scaling, like AdamW's weight decay. Between two steps the model holds v. If α < 1, the
    gradient of a weight that is zero in u is limited: no step raises it by more than the threshold. See `temper`.

    Args:
        penalty: a penalty with its λ; with a target sparsity, which sets λ, a name such as "l0" is enough.
        beta: the relaxation β; with a target it is optional, and ``pull`` sets it.
        pull: sets β = pull/(η₀·steps), where η₀ is the largest learning rate of the parameter group so far. The total
            pull Σηβ is therefore about this number for any optimizer; a new optimizer resets β. The default is 100,
            which lies between the paper's 33 (Table 1) and 264 (Table 2), or a quarter of the steps if that is less.
        gradient: where the gradient is taken. "w" is the paper's method, α = 1; "u" is α = 0, the straight-through
            form; "moving" goes from w to u along the ramp of a target; "auto" is "moving" with a target and
            order="proof", otherwise "w".
        order: "proof" thresholds the current w, as in the convergence proof, and keeps no state; "printed" uses the u
            of the previous step, as Algorithm 1 is printed, and can cycle indefinitely.
        decoupled: False adds β(w − u) to the gradient instead, so that momentum and adaptive scaling apply to it.

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
    keeps = ("u",)

    penalty: Penalty | str = field(kw_only=False)
    beta: float | None = None
    pull: float | None = None
    gradient: Literal["auto", "w", "u", "moving"] = "auto"
    order: Literal["proof", "printed"] = "proof"
    decoupled: bool = True

    # The algorithm

    def sparse(self, layer: Layer) -> Tensor:
        """Return u = prox(w), in both orders."""
        return layer.prox(layer.w.detach())

    @property
    def alpha(self) -> float:
        """1 at w, 0 at u; with "moving", what is still missing of the target."""
        if self.gradient == "moving" and self.budget is not None:
            return 1 - self.budget.reached(self.step)
        return float(self.gradient == "w")

    def before_step(self, layer: Layer, lr: float) -> None:
        """Pull w towards u: w ← w − ηβ(w − u)."""
        if self.decoupled and self.order == "proof":
            if layer.penalty is not None:  # otherwise u is w
                for (w,) in layer.blocks(layer.w):  # so that u is never larger than the cache
                    w.lerp_(layer.prox(w), layer.pull(lr))
            return
        u = self.sparse(layer)
        if self.order == "printed":  # the u of the previous step; the first step uses its own
            u, layer.memory["u"] = layer.memory.get("u", u), u
        if self.decoupled:
            layer.w.lerp_(u, layer.pull(lr))
        elif (gradient := layer.gradient) is not None and layer.beta is not None:
            uphill = bool(self.optimizer_options(layer).get("maximize"))  # then the optimizer adds the gradient
            gap = u - layer.w if uphill else layer.w - u
            gradient.add_(gap, alpha=layer.beta * self.gradient_scale)

    def prepare(self, layer: Layer, lr: float) -> None:
        """Limit the gradient if it is not taken at w."""
        if self.alpha < 1:
            self.temper(layer, lr)
        if not self.decoupled:
            require_dense_gradient(layer.name, layer.gradient)

    def temper(self, layer: Layer, lr: float) -> None:
        """Keep gradients at v from raising weights that are zero in u.

        If u has emptied a whole output, v = αw there, and a batch norm that follows divides by a standard
        deviation close to zero. The gradient grows like 1/α, to hundreds of times that of weights in use.
        Such weights would jump far above every threshold, and a common ranking would give them the places of
        whole layers. So the gradient of an emptied output is multiplied by α = dv/dw, as in the chain rule. The
        gradient of any other weight that is zero in u is limited to t(1 − μ)/η, for the threshold t and the
        momentum μ: it raises no weight by more than the threshold. At a stationary point no gradient is that large: it
        is β|w|(1 − μ) there, with |w| ≤ t and ηβ < 1.
        """
        gradient = layer.gradient
        if layer.penalty is None or gradient is None or gradient.layout != torch.strided or lr <= 0:
            return
        momentum = float(self.optimizer_options(layer).get("momentum", 0.0))
        limit = layer.threshold * (1 - momentum) / lr * self.gradient_scale
        unused = torch.empty_like(layer.w, dtype=torch.bool)
        for w, g, mask in layer.blocks(layer.w.detach(), gradient, unused):
            torch.eq(layer.prox(w), 0, out=mask)
            if len(g) and float(g.abs().max()) > limit:  # a process may have no part of it
                g.copy_(torch.where(mask, g.clamp(-limit, limit), g))
        emptied = layer.emptied_outputs(unused)
        if bool(emptied.any()):
            gradient.mul_(torch.where(emptied, self.alpha, 1.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in ("proof", "printed"):
            raise ValueError(f"unknown order {self.order!r}; choose from proof, printed")
        if self.gradient == "auto":
            self.gradient = "w" if self.budget is None or self.order == "printed" else "moving"
        _require_gradient(self.gradient, self.order, self.budget)
        if self.pull is not None and (self.budget is None or self.beta is not None):
            raise ValueError("pull= sets β for a target sparsity: use it with sparsity= and without beta=")
        if self.budget is not None and self.beta is None:
            self.pull = total_pull(self.pull, self.budget.steps)
        for layer in self.layers:
            if layer.beta is None:
                if self.pull is None or self.budget is None:
                    raise ValueError(f"beta is missing for {layer.name!r}: give beta=, or sparsity= and steps=")
                layer.rate = self.pull / self.budget.steps

    def kinds(self) -> tuple[str, ...]:
        """Return u in the printed order, and w if the gradient is taken elsewhere."""
        return ("u",) * (self.order == "printed") + ("w",) * (self.gradient != "w")

    def layer_options(self) -> dict[str, Any]:
        """Add the penalty and β."""
        return {"penalty": self.penalty, "beta": self.beta, **super().layer_options()}

    def settings(self) -> dict[str, str]:
        """Add the order, where the gradient is taken, whether the pull is decoupled, and the total pull."""
        mine = {"order": self.order, "gradient": self.gradient}
        return {**super().settings(), **mine, "decoupled": repr(self.decoupled), "pull": repr(self.pull)}


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
            f" {gradient!r}; omit one of the two"
        )
