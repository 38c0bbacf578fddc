"""How many threads are sensible on this machine."""

import os

PER_CORE = 8
"""More threads than this for each core only wait; tens of thousands end the process instead of raising an error."""


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_threads(count: int) -> int:
    """Return a number of threads, or raise if this machine should not be asked for so many.

    >>> require_threads(1)
    1
    >>> require_threads(1_000_000_000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: threads must be at most ..., 8 for each core of this machine, but is 1000000000
    """
    if count < 1:
        raise ValueError(f"threads must be at least 1 but is {count}")
    if count > (most := PER_CORE * (os.cpu_count() or 1)):
        raise ValueError(f"threads must be at most {most}, {PER_CORE} for each core of this machine, but is {count}")
    return count
