"""The same network on data: a finite sample, whose loss is only piecewise smooth, and Monte Carlo estimates."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from rvsm.paper.theory.network import Evaluation, angle, require_patches


def output(x: Tensor, w: Tensor) -> Tensor:
    """Return L(x; w) = (1/k) Σ_i relu(w·x_i) for inputs x [N, k, d] and weights w [n, d], as [N, n].

    >>> output(torch.ones(1, 2, 3), torch.ones(1, 3))
    tensor([[3.]])
    """
    if x.dim() != 3 or x.shape[-1] != w.shape[-1]:
        raise ValueError(f"x must be [N, k, {w.shape[-1]}] to fit w of shape {tuple(w.shape)} but is {tuple(x.shape)}")
    return (x @ w.T).relu().mean(dim=1)


def inputs(samples: int, *, k: int, d: int, generator: torch.Generator | None = None) -> Tensor:
    """Return standard normal inputs [samples, k, d] in float64."""
    require_patches(k)
    if samples < 1:
        raise ValueError(f"a sample needs at least one input but has {samples}")
    return torch.randn(samples, k, d, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class Empirical:
    """The mean squared error on a finite sample, instead of its expectation.

    >>> empirical = Empirical(inputs(100, k=2, d=3), torch.ones(3, dtype=torch.float64))
    >>> empirical(torch.ones(1, 3, dtype=torch.float64))
    tensor([0.], dtype=torch.float64)

    """

    x: Tensor  # the inputs, [N, k, d]
    truth: Tensor  # the ground truth w*, [d]
    noise: float = 0.0  # the standard deviation of normal noise on the labels
    generator: torch.Generator | None = None  # the source of the noise
    labels: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        labels = output(self.x, self.truth.unsqueeze(0))
        if self.noise:
            labels = labels + self.noise * torch.randn(labels.shape, generator=self.generator, dtype=labels.dtype)
        object.__setattr__(self, "labels", labels)

    def __call__(self, w: Tensor) -> Tensor:
        """Return the mean squared error of each row of w; differentiable by autograd."""
        return (output(self.x, w) - self.labels).square().mean(dim=0)

    def evaluate(self, w: Tensor) -> Evaluation:
        """Return the loss, its gradient, θ and ‖w‖ at each row of w."""
        rows = w.detach().clone().requires_grad_()
        with torch.enable_grad():
            value = self(rows)
            (slope,) = torch.autograd.grad(value.sum(), rows)
        return Evaluation(value.detach(), slope, angle(w.detach(), self.truth), w.detach().norm(dim=-1))


class Estimate(NamedTuple):
    """A Monte Carlo estimate and its standard error."""

    value: Tensor
    error: Tensor


def monte_carlo(
    w: Tensor, truth: Tensor, *, k: int, samples: int, generator: torch.Generator | None = None
) -> Estimate:
    """Estimate f at each row of w [n, d] from fresh inputs."""

    def errors(x: Tensor) -> Tensor:
        return (output(x, w.double()) - output(x, truth.double().unsqueeze(0))).square()

    return _estimate(errors, samples, k=k, d=w.shape[-1], generator=generator)


def monte_carlo_cross_moment(
    v: Tensor, w: Tensor, *, samples: int, generator: torch.Generator | None = None
) -> Estimate:
    """Estimate g(v, w) = E[relu(v·x)relu(w·x)] for each pair of rows."""

    def products(x: Tensor) -> Tensor:
        return output(x, v.double()) * output(x, w.double())

    return _estimate(products, samples, k=1, d=w.shape[-1], generator=generator)


def _estimate(
    values: Callable[[Tensor], Tensor], samples: int, *, k: int, d: int, generator: torch.Generator | None
) -> Estimate:
    """Return the mean over fresh inputs and its standard error, computed in chunks to limit memory."""
    total = squares = torch.zeros((), dtype=torch.float64)
    chunk = max(1, min(samples, 2_000_000 // (k * d)))
    for done in range(0, samples, chunk):
        found = values(inputs(min(chunk, samples - done), k=k, d=d, generator=generator))
        total, squares = total + found.sum(dim=0), squares + found.square().sum(dim=0)
    mean = total / samples
    return Estimate(mean, ((squares / samples - mean.square()).clamp_min(0) / samples).sqrt())
