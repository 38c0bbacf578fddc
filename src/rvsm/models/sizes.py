"""Scaling the widths of layers, and checking the sizes of a network."""

import math
from collections.abc import Sequence


def scaled(channels: Sequence[int], width: float) -> list[int]:
    """Return each number of channels times ``width``, rounded, and at least 1.

    >>> scaled((16, 32, 64), 0.5)
    [8, 16, 32]
    """
    if not (width > 0 and math.isfinite(width)):
        raise ValueError(f"width must be > 0 but is {width}")
    return [max(1, round(width * c)) for c in channels]


def check(*, classes: int, channels: int, size: int = 1, smallest: int = 1) -> None:
    """Raise unless there is at least one class and one channel, and the image is large enough."""
    for name, value in (("classes", classes), ("channels", channels)):
        if value < 1:
            raise ValueError(f"{name} must be >= 1 but is {value}")
    if size < smallest:
        raise ValueError(f"this network needs images of at least {smallest}×{smallest} pixels but size is {size}")
