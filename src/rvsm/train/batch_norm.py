"""Batch norm with the statistics of the images of all processes; torch's own SyncBatchNorm needs a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rvsm.train.ranks import Ranks


@contextmanager
def synchronized(model: nn.Module, ranks: Ranks, *, compiled: bool = False) -> Iterator[None]:
    """Let batch norm use the images of all processes for the duration of a block; the modules stay what they are.

    Every process must compute the same layers in the same order; it may have no images. A compiled model must be known
    as such: torch.compile cannot look into messages, and would have to be imported to say so, which takes seconds.
    """
    norms = synchronizable(model)
    forward = torch.compiler.disable(_forward) if compiled else _forward  # type: ignore[no-untyped-call]
    for norm in norms:
        vars(norm)["forward"] = partial(forward, norm, ranks)
    try:
        yield
    finally:
        for norm in norms:
            del vars(norm)["forward"]


def synchronizable(model: nn.Module) -> list[_BatchNorm]:
    """Return the batch-norm modules of torch; a subclass with a forward of its own does as it likes."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and type(m).forward is _BatchNorm.forward]


def _forward(norm: _BatchNorm, ranks: Ranks, x: Tensor) -> Tensor:
    tracked = norm.running_mean is not None and norm.running_var is not None
    if not norm.training and tracked:
        return _BatchNorm.forward(norm, x)
    norm._check_input_dim(x)  # type: ignore[no-untyped-call]
    mean, variance, count = _statistics(x.detach(), ranks)
    if count <= 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {x.size()}")
    if norm.training and tracked:
        _track(norm, mean, variance * (count / (count - 1)))
    mean, variance = mean.to(_precise(x)), variance.to(_precise(x))
    how = (count, norm.eps, ranks)
    normalized: Tensor = _Normalize.apply(x, norm.weight, norm.bias, mean, variance, how)  # type: ignore[no-untyped-call]
    return normalized


def _statistics(x: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, int]:
    """Return the mean and variance of each channel, and how many values it has, over the images of all processes.

    With n_r values of mean μ_r and variance σ²_r on rank r, μ = Σ n_r·μ_r / n and σ² = Σ n_r·(σ²_r + (μ_r − μ)²) / n.
    """
    channels = x.shape[1]
    own = torch.zeros(3, channels, dtype=torch.float64, device=x.device)
    if x.numel():
        every = [dimension for dimension in range(x.ndim) if dimension != 1]
        own[1], own[0] = torch.var_mean(x.to(_precise(x)), every, correction=0)
        own[2] = x.numel() // channels
    means, variances, counts = ranks.gather(own).unbind(1)
    count = counts.sum(0)
    mean = (counts * means).sum(0) / count
    return mean, (counts * (variances + (means - mean).square())).sum(0) / count, int(count[0])


def _track(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics as `torch.nn.functional.batch_norm` does."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked += 1
    momentum = 1 / int(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    with torch.no_grad():
        norm.running_mean.lerp_(mean.to(norm.running_mean), momentum)
        norm.running_var.lerp_(variance.to(norm.running_var), momentum)


class _Normalize(torch.autograd.Function):
    """y = γ·x̂ + β with x̂ = (x − μ)/σ, where μ and σ depend on the images of all processes.

    For the gradient g of y, those of γ and β are Σ g·x̂ and Σ g over the images of this process, and that of x is
    γ/σ · (g − (Σ g + x̂·Σ g·x̂)/n), with sums over the images of all processes.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - torch passes arguments by position
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        how: tuple[int, float, Ranks],
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.how = how
        return nn.functional.batch_norm(x, mean, variance, weight, bias, training=False, eps=how[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        count, eps, ranks = ctx.how
        gamma = torch.ones_like(mean) if weight is None else weight
        own = torch.zeros(2, len(mean), dtype=mean.dtype, device=mean.device)
        dx = torch.zeros_like(x)
        if x.numel():  # torch crashes if there are no images
            # γ/σ·g, Σ g·x̂ and Σ g in one pass: the gradients of batch norm with constant statistics
            dx, own[0], own[1] = torch.ops.aten.native_batch_norm_backward(
                gradients[0], x, weight, mean, variance, None, None, False, eps, [True, True, True]
            )
        product, plain = ranks.total(own.clone())
        over_sigma = torch.rsqrt(variance + eps)
        slope = gamma * over_sigma.square() * product / count
        level = gamma * over_sigma * plain / count - slope * mean
        shape = [1, -1, *[1] * (x.ndim - 2)]
        dx = (dx - (level.view(shape) + slope.view(shape) * x)).to(x.dtype)
        d_weight, d_bias = (own[i] if ctx.needs_input_grad[1 + i] else None for i in range(2))
        return dx, d_weight, d_bias, None, None, None


def _precise(x: Tensor) -> torch.dtype:
    """Return the type of statistics: float32 also for autocast's bfloat16."""
    return torch.promote_types(x.dtype, torch.float32)
