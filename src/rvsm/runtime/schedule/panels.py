"""Panels: what a tile reads of the input, copied to where it is contiguous.

The layout of a map can be bad for caches. The channels of 128 tokens with 8 images each are 4 KiB apart, so that all of
them compete for the same few places of a cache. The channels of 197 tokens begin inside a cache line, so that half of
the vectors cross one. A thread therefore copies the window of a tile, channel by channel, before it computes the tile.
Every tile uses the same memory, which stays in the second-level cache. The copy costs little if each of its numbers
meets many weights.
"""

from dataclasses import replace
from math import prod

import numpy as np

from rvsm.runtime.kernels.convolution import Convolution as Kernel
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.schedule.step import Scratch, Site
from rvsm.runtime.schedule.taps import Taps, taps
from rvsm.runtime.schedule.tiling import tilings

WORTH = 16  # the least number of multiply-adds for each vector that is copied


def paneled(site: Site[Convolution], where: Taps, kernel: Kernel, *, dense: bool) -> tuple[Kernel, Taps]:
    """Return the kernel that copies the windows of its tiles, and where the taps are then.

    If the copy would take too long, they stay as they are. Shifted copies for single images are contiguous anyway.
    """
    o, vector = site.operation, 4 * kernel.lanes
    assert site.weights is not None
    if site.sources[0].geometry.unit == 1 and (len(where.phases) or o.kernel != (1, 1)):
        return kernel, where
    tile = (kernel.rows, kernel.columns)
    rows, columns = ((tile[k] - 1) * o.stride[k] + 1 + o.dilation[k] * (o.kernel[k] - 1) for k in range(2))
    weights = prod(site.weights.shape) if dense else len(site.weights.values)
    if site.sources[0].channels * rows * columns * WORTH > weights * kernel.vectors:
        return kernel, where
    copying = replace(kernel, panel_rows=rows, panel_columns=columns)
    down, right = (np.arange(o.kernel[k], dtype=np.int64) * o.dilation[k] for k in range(2))
    offsets = np.add.outer(down * columns * vector, right * vector).reshape(-1)
    row = o.stride[0] * columns * vector
    return copying, replace(where, plane=copying.panel_bytes, offsets=offsets, row=row)


def room(site: Site[Convolution], where: Taps) -> int:
    """Return the bytes that a thread needs for its panel.

    It is the same for all tiles of the operation: threads do not wait for each other between tiles of different sizes.
    """
    kernels = [kernel for block in (1, 2, 4) for kernel, _ in tilings(site, where, block)]
    found = (paneled(site, where, kernel, dense=dense)[0] for kernel in kernels for dense in (False, True))
    return site.sources[0].channels * max(kernel.panel_bytes for kernel in found)


def scratch(site: Site[Convolution]) -> Scratch | None:
    """Return the memory of the panels, one for each thread, which may hold anything before; none if there are none."""
    needed = room(site, taps(site))
    return (None, needed * site.threads) if needed else None
