"""The optimizers of the training command line, by name."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Protocol

import torch
from torch import nn
from torch.optim import Optimizer


class OptimizerOptions(Protocol):
    """The options of an optimizer, from a file or the command line."""

    @property
    def lr(self) -> float:
        """The largest learning rate."""

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return the optimizer of these parameters."""


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, by default with Nesterov's momentum.

    Args:
        lr: the largest learning rate; the schedule multiplies it.
        momentum: the fraction of the previous step's direction that is kept.
        nesterov: use Nesterov's form of momentum.
        weight_decay: the weight of ‖w‖²/2 in the loss.

    """

    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return torch's SGD of these parameters."""
        return torch.optim.SGD(parameters, **asdict(self))


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay.

    Args:
        lr: the largest learning rate; the schedule multiplies it.
        betas: decay rates of the running means of the gradient and of its square.
        weight_decay: decay rate of the weights, multiplied by the learning rate.

    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return torch's AdamW of these parameters."""
        return torch.optim.AdamW(parameters, **asdict(self))


OPTIMIZERS: dict[str, type[OptimizerOptions]] = {"sgd": SGD, "adamw": AdamW}
