"""Small models, with and without shards, and how they are trained.

A model with shards gets the same batches on all ranks as the model without, so that the average of the gradients is the
same number, and what is computed elementwise must be equal bit for bit.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import rvsm
from rvsm.runtime.kernels.jit import machine
from rvsm.splitting import Method
from rvsm.timing import Curve, LayerTimes, Profile

STEPS = 3
SCHEDULE = {"budget": rvsm.Budget(0.7, STEPS, ramp=1 / 3)}  # one step of the ramp, one on hold, one with fixed zeros
SLOW_STEPS = 8
SLOW = {"budget": rvsm.Budget(0.7, SLOW_STEPS, every=2)}  # 4, 2 and 2; every other step keeps its threshold
Make = Callable[[nn.Module], Method]


def network() -> nn.Sequential:
    """Return a network with rows that 2 and 4 do not divide, and with fewer rows than ranks."""
    torch.default_generator.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 10, 3, bias=False), nn.BatchNorm2d(10), nn.ReLU(),
        nn.ConvTranspose2d(10, 6, 3, groups=2, bias=False), nn.ReLU(),
        nn.Conv2d(6, 10, 3, groups=2, bias=False), nn.ReLU(),
        nn.ConvTranspose2d(10, 7, 2, bias=False), nn.ReLU(), nn.Flatten(),
        nn.Linear(7 * 25, 3),
    )  # fmt: skip


def perceptron() -> nn.Sequential:
    """Return two linear layers of 11 and 3 rows."""
    torch.default_generator.manual_seed(0)
    return nn.Sequential(nn.Linear(13, 11), nn.ReLU(), nn.Linear(11, 3))


def perceptron_times() -> Profile:
    """Return times of the two linear layers, of which the first is dearer and no faster with a few zeros."""
    first = LayerTimes((11, 13), "element", Curve((0.0, 0.6, 1.0), (1e-6, 1e-3, 1.001e-3)))
    last = LayerTimes((3, 11), "element", Curve((0.0, 1.0), (1e-6, 1e-4)))
    return Profile(machine().name, 64, 1, ((13,),), 1e-5, {"0.weight": first, "2.weight": last})


def batches(model: nn.Module, count: int = STEPS) -> Iterator[Tensor]:
    """Yield the same inputs on all ranks, whatever the random state."""
    draw = torch.Generator().manual_seed(1)
    shape = (8, 3, 6, 6) if len(model) > 3 else (8, 13)  # type: ignore[arg-type]
    for _ in range(count):
        yield torch.randn(shape, generator=draw)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return SGD with momentum, in which no sum over several tensors depends on the way they are divided."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def shard(model: nn.Sequential, **options: Any) -> nn.Sequential:
    """Return the model in one group, or a larger one with its first and its last layer in groups of their own."""
    if len(model) > 3:
        fully_shard(model[0], **options)
        fully_shard(model[-1], **options)
    fully_shard(model, **options)
    return model


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def train(model: nn.Module, method: Method, count: int = STEPS, seen: list[float] | None = None) -> Method:
    """Attach the method and train; note all thresholds and λ on the way."""
    optimizer = optimizer_of(model)
    method.attach(optimizer)
    for x in batches(model, count):
        step(model, optimizer, x)
        if seen is not None:
            seen += [layer.threshold for layer in method.layers]
            seen += [0.0 if layer.penalty is None else layer.penalty.lam for layer in method.layers]
    return method
