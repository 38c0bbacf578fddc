"""What evaluating a network must leave as it was: modes, buffers and random states."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Bring every module's training or evaluation mode back on leaving.

    >>> model = nn.Sequential(nn.Dropout())
    >>> with modes_kept(model):
    ...     _ = model.eval()
    >>> model[0].training
    True
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Bring every buffer back, bit for bit, on leaving."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)


@contextmanager
def random_state_kept(batches: object = None) -> Iterator[None]:
    """Bring the random states of torch, Python and NumPy back on leaving, and those of a data loader's generators."""
    owners = [batches, *(getattr(batches, name, None) for name in ("sampler", "batch_sampler"))]
    owners.append(getattr(getattr(batches, "batch_sampler", None), "sampler", None))
    found = (getattr(owner, "generator", None) for owner in owners)
    generators = {id(g): (g, g.get_state()) for g in found if isinstance(g, torch.Generator)}
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        for generator, state in generators.values():
            generator.set_state(state)
