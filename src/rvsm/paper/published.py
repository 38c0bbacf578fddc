"""RVSM and ADMM as in the scripts that the paper's authors published.

The scripts do things that the paper does not say, and these change the results. The two methods here do the same.
They are kept so that the paper's numbers can be traced; not to be used otherwise.
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
    """What both scripts do beside the paper's algorithms, to be mixed into a method.

    Only the weights of convolutions (four dimensions) are sparsified. After the last step of each epoch w is
    overwritten by u, and training goes on from there; what the method keeps between steps is forgotten; and all
    that the optimizer keeps is cleared, since the scripts build their SGD anew for each epoch.
    """

    def __init__(self, model: nn.Module, *, epoch_steps: int, **options: Any) -> None:
        if not isinstance(model, nn.Module):
            got = type(model).__name__
            raise ValueError(f"{self.name} needs a torch.nn.Module with convolutions but got {got}")
        if isinstance(epoch_steps, bool) or not isinstance(epoch_steps, int) or epoch_steps < 1:
            raise ValueError(f"epoch_steps must be a whole number of steps ≥ 1 but is {epoch_steps!r}")
        super().__init__(model, **options)
        self.epoch_steps = epoch_steps
        self.layers[:] = [layer for layer in self.layers if layer.w.dim() == 4]
        if not self.layers:
            raise ValueError(
                f"found no convolution weights of four dimensions, and {self.name} sparsifies no others; take a"
                " network with convolutions, or another method"
            )

    @abstractmethod
    def thresholded(self, layer: Layer) -> Tensor:
        """Return the sparse copy that the method makes within an epoch."""

    def settings(self) -> dict[str, str]:
        """Return the length of an epoch, too."""
        return {**super().settings(), "epoch_steps": repr(self.epoch_steps)}

    def sparse(self, layer: Layer) -> Tensor:
        """Return u; between two epochs that is w itself, which a second thresholding by ℓ1 would shrink again."""
        between = self.step > 0 and self.step % self.epoch_steps == 0
        return layer.w.detach().clone() if between else self.thresholded(layer)

    def after_step(self, layer: Layer, lr: float) -> None:
        """Do what the method does after a step, unless it is the last one of an epoch."""
        if self.step % self.epoch_steps:
            super().after_step(layer, lr)

    def after(self, optimizer: Optimizer) -> None:
        """After the last step of an epoch, overwrite w and begin anew."""
        super().after(optimizer)
        if self.awaits_steps() and self.step % self.epoch_steps == 0:
            for layer in self.layers.active:
                layer.w.copy_(self.thresholded(layer))
                layer.memory.clear()
            optimizer.state.clear()


class PublishedRVSM(Published, RVSM):
    """RVSM as in the published script: w is overwritten by u after each epoch.

    The paper's algorithm never writes u into w. It does not say that only convolutions are sparsified, nor that
    momentum restarts with each epoch. Kept so that the paper's numbers can be traced; not to be used otherwise.

    Args:
        model: a module with convolutions.
        penalty: a penalty with its λ.
        beta: the relaxation β.
        epoch_steps: the number of optimizer steps of one epoch.

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
    r"""ADMM as in the published script: a threshold that is too low, and a pull that is made too often.

    .. math::
        w &\leftarrow c + (1 - \eta\rho)^L (w - c), \quad c = u - z/\rho \\
        v &\leftarrow w + z/\rho, \quad u \leftarrow v \text{ where } |v| \ge t \text{, else } 0 \\
        z &\leftarrow z + \rho(w - u)

    The threshold t is a quantile of the signed entries of v in each layer, not of their magnitudes: 60 % asked of
    symmetric weights gives about 20 % zeros, and a quantile below zero gives none. The pull sits in a nested loop
    and so is made L times in each step, once for each of the L layers. u and z change at each step; with each
    epoch they begin anew, at z = 0, where w is overwritten by u and momentum restarts. The paper says none of
    this. Kept so that its numbers can be traced; not to be used otherwise.

    Args:
        model: a module with convolutions.
        rho: the weight ρ of the quadratic term.
        sparsity: the quantile of the signed entries, as a share; far fewer zeros come of it.
        epoch_steps: the number of optimizer steps of one epoch.

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
        v = self.shifted(layer)
        t = np.quantile(v.cpu().numpy(), layer.sparsity)
        return v.masked_fill(v.abs() < float(t), 0)

    def pull_rate(self, layer: Layer, lr: float) -> float:
        """Return the share of the way that L pulls make."""
        return 1 - (1 - super().pull_rate(layer, lr)) ** len(self.layers.attached)
