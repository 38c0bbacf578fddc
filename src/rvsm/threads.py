"""PyTorch's threads, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rvsm.cores import require_threads


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let PyTorch use ``count`` threads inside of the block, or as many as it does if that is None.

    Far more than there are cores are a ValueError: PyTorch would crash.

    >>> with torch_threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if count is None or count == before:  # to set it takes as long as a small network
        yield
        return
    torch.set_num_threads(require_threads(count))
    try:
        yield
    finally:
        torch.set_num_threads(before)
