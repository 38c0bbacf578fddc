"""Training and evaluation modes of modules."""

from collections.abc import Iterator
from contextlib import contextmanager

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
