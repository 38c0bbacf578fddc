"""RVSM and ADMM as in the scripts that the paper's authors published.

The scripts do things that the paper does not mention and that change the results. The two methods here do the same.
They exist so that the paper's numbers can be traced. Do not use them for anything else.
"""

from abc import abstractmethod
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.penalties import Penalty
from rvsm.splitting.admm import ADMM
from rvsm.splitting.layers import Layer
from rvsm.splitting.method import Method
from rvsm.splitting.rvsm import RVSM


class Published(Method):
    """A mixin for methods: what both scripts do in addition to the paper's algorithms.

    Only the weights of convolutions (four dimensions) are sparsified. After the last step of each epoch, w is
    overwritten by u, and training continues from there. The state of the method and of the optimizer is cleared,
    because the scripts create a new SGD optimizer for each epoch.
    """

    def __init__(self, model: nn.Module, *, epoch_steps: int, **options: Any) -> None:
        if not isinstance(model, nn.Module):
            got = type(model).__name__
            raise ValueError(f"{self.name} needs a torch.nn.Module with convolutions but got {got}")
        if isinstance(epoch_steps, bool) or not isinstance(epoch_steps, int) or epoch_steps < 1:
            raise ValueError(f"epoch_steps must be an integer ≥ 1 but is {epoch_steps!r}")
        super().__init__(model, **options)
        self.epoch_steps = epoch_steps
        self.layers[:] = [layer for layer in self.layers if layer.w.dim() == 4]
        if not self.layers:
            raise ValueError(
                f"{self.name} sparsifies only convolution weights of four dimensions but found none; use a network with"
                " convolutions, or another method"
            )

    @abstractmethod
    def thresholded(self, layer: Layer) -> Tensor:
        """Return the sparse copy that the method computes within an epoch."""

    def settings(self) -> dict[str, str]:
        """Return the settings, including the length of an epoch."""
        return {**super().settings(), "epoch_steps": repr(self.epoch_steps)}

    def sparse(self, layer: Layer) -> Tensor:
        """Return u; between two epochs it is w itself, because thresholding twice with ℓ1 would shrink w again."""
        between = self.step > 0 and self.step % self.epoch_steps == 0
        return layer.w.detach().clone() if between else self.thresholded(layer)

    def after_step(self, layer: Layer, lr: float) -> None:
        """Do what the method does after a step, unless it is the last one of an epoch."""
        if self.step % self.epoch_steps:
            super().after_step(layer, lr)

    def after(self, optimizer: Optimizer) -> None:
        """Overwrite w and clear the state after the last step of an epoch."""
        super().after(optimizer)
        if self.awaits_steps() and self.step % self.epoch_steps == 0:
            for layer in self.layers.active:
                layer.w.copy_(self.thresholded(layer))
                layer.memory.clear()
            optimizer.state.clear()


class PublishedRVSM(Published, RVSM):
    """RVSM as in the published script: w is overwritten by u after each epoch.

    The paper's algorithm never writes u into w. The paper does not say that only convolutions are sparsified, or that
    momentum restarts with each epoch.

    Args:
        model: a module with convolutions.
        penalty: a penalty with its λ.
        beta: the relaxation β.
        epoch_steps: the number of optimizer steps per epoch.

    Example:
        >>> import rvsm, torch
        >>> from rvsm.paper.published import PublishedRVSM
        >>> conv = nn.Conv2d(1, 2, 1, bias=False)
        >>> conv.weight.data = torch.tensor([0.5, 3.0]).view(2, 1, 1, 1)
        >>> optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
        >>> method = PublishedRVSM(conv, rvsm.L0(lam=0.5), beta=1.0, epoch_steps=1).attach(optimizer)
        >>> (0 * conv(torch.ones(1, 1, 1, 1))).sum().backward()
        >>> optimizer.step()
        >>> conv.weight.flatten().tolist()
        [0.0, 3.0]

    """

    name = "rvsm-published"

    def __init__(self, model: nn.Module, penalty: Penalty, *, beta: float, epoch_steps: int) -> None:
        super().__init__(model, penalty=penalty, beta=beta, epoch_steps=epoch_steps)

    def thresholded(self, layer: Layer) -> Tensor:
        """Return prox(w)."""
        return RVSM.sparse(self, layer)


class PublishedADMM(Published, ADMM):
    r"""ADMM as in the published script: a threshold that is too low, and a pull that is applied too often.

    .. math::
        w &\leftarrow c + (1 - \eta\rho)^L (w - c), \quad c = u - z/\rho \\
        v &\leftarrow w + z/\rho, \quad u \leftarrow v \text{ where } |v| \ge t \text{, else } 0 \\
        z &\leftarrow z + \rho(w - u)

    The threshold t is a quantile of the signed entries of v in each layer, not of their magnitudes. A quantile of
    60 % gives about 20 % zeros for symmetric weights, and a quantile below zero gives none. The pull is in a nested
    loop and is therefore applied L times in each step, once for each of the L layers. u and z change at each step.
    After each epoch z restarts at 0, w is overwritten by u, and momentum restarts. The paper mentions none of this.

    Args:
        model: a module with convolutions.
        rho: the weight ρ of the quadratic term.
        sparsity: the quantile of the signed entries, as a fraction; it gives a far smaller fraction of zeros.
        epoch_steps: the number of optimizer steps per epoch.

    Example:
        >>> import torch
        >>> from rvsm.paper.published import PublishedADMM
        >>> conv = nn.Conv2d(100, 100, 1)
        >>> optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
        >>> method = PublishedADMM(conv, rho=0.01, sparsity=0.6, epoch_steps=10).attach(optimizer)
        >>> round(method.statistics().sparsity, 1)
        0.2

    """

    name = "admm-published"

    def __init__(self, model: nn.Module, *, rho: float, sparsity: float, epoch_steps: int) -> None:
        super().__init__(model, rho=rho, sparsity=sparsity, epoch_steps=epoch_steps)

    def thresholded(self, layer: Layer) -> Tensor:
        """Return v without the entries that are smaller than the quantile."""
        assert layer.sparsity is not None
        v = self.point(layer)
        t = np.quantile(v.cpu().numpy(), layer.sparsity)
        return v.masked_fill(v.abs() < float(t), 0)

    def pull_rate(self, layer: Layer, lr: float) -> float:
        """Return the fraction of the distance that L pulls cover."""
        return 1 - (1 - super().pull_rate(layer, lr)) ** len(self.layers.attached)
