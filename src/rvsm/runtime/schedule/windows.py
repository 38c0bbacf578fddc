"""Windows over single channels, for single images: depthwise convolutions, and pooling where all windows are alike."""

from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels.kernel import Operands
from rvsm.runtime.kernels.windows import Window
from rvsm.runtime.plan.operation import NOTHING, Activation, Shape
from rvsm.runtime.plan.operations import Convolution, Pooling
from rvsm.runtime.schedule.step import Scratch, Site, Step, parameters

Windows = Site[Convolution] | Site[Pooling]

MOST_TAPS = 49  # taps and phases of the stride are unrolled
MOST_PHASES = 4
CACHE = 1 << 18  # bytes of a channel with its border; larger ones do not stay in the cache


def fits(site: Windows) -> bool:
    """Return whether an operation is computed channel by channel."""
    o, x = site.operation, site.sources[0]
    if isinstance(o, Convolution):
        alike = o.groups == x.channels and o.kernel != (1, 1)
    else:
        alike = o.mode == "max" or (o.padded and not _overhang(o, x.shape, site.target.shape))
    short = prod(o.kernel) <= MOST_TAPS and o.stride[1] <= MOST_PHASES
    return alike and short and x.geometry.unit == 1 and _Room(site).bytes <= CACHE


def _overhang(o: Pooling, source: Shape, shape: Shape) -> bool:
    """Return whether a window ends beyond the border, where PyTorch divides by a smaller number."""
    ends = [(shape[1 + k] - 1) * o.stride[k] + o.kernel[k] for k in range(2)]
    return any(ends[k] > source[1 + k] + 2 * o.padding[k] for k in range(2))


class _Room:
    """The memory for a channel with its border: rows, and in each row a part for each phase of the stride."""

    def __init__(self, site: Windows) -> None:
        o, source, shape = site.operation, site.sources[0].shape, site.target.shape
        reach = [(shape[1 + k] - 1) * o.stride[k] + o.dilation[k] * (o.kernel[k] - 1) + 1 for k in range(2)]
        rows, columns = (max(reach[k], source[1 + k] + o.padding[k]) for k in range(2))
        self.stride = o.stride[1]
        self.part = 4 * -(-columns // self.stride)
        self.line = self.part * self.stride
        self.bytes = -(-rows * self.line // 64) * 64
        self.corner = o.padding[0] * self.line
        self.offsets = self.at(np.arange(o.kernel[1], dtype=np.int64) * o.dilation[1])
        self.phases = self.at(o.padding[1] + np.arange(self.stride, dtype=np.int64))

    def at(self, column: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where columns are in a row."""
        return column % self.stride * self.part + column // self.stride * 4


def scratch(site: Windows) -> Scratch | None:
    """Return the room of every thread, which may hold anything before; none if it is not needed."""
    return (None, _Room(site).bytes * site.threads) if fits(site) else None


def depthwise(site: Site[Convolution]) -> list[Step]:
    """Return the step of a convolution in which each channel has its own weights."""
    assert site.weights is not None
    assert site.bias is not None
    weights = site.weights.dense().reshape(len(site.bias), -1)
    return [_step(site, "sum", np.column_stack([weights, site.bias]), site.operation.activation)]


def pooling(site: Site[Pooling]) -> list[Step]:
    """Return the step of a pooling; none if its windows are not alike."""
    if not fits(site):
        return []
    taps, mode = prod(site.operation.kernel), site.operation.mode
    row = [1.0] * taps + [-inf] if mode == "max" else [1 / taps] * taps + [0.0]
    return [_step(site, "max" if mode == "max" else "sum", np.array([row]), NOTHING)]


def _step(site: Windows, mode: str, weights: NDArray[Any], activation: Activation) -> Step:
    """Return the step; ``weights`` has a row for each channel, or one for all of them."""
    o, x, y = site.operation, site.sources[0], site.target
    room = _Room(site)
    whole = -(-y.geometry.width // site.machine.lanes) * site.machine.lanes  # columns of a row in whole vectors
    kernel = Window(site.machine.lanes, mode, *o.kernel, *o.stride, o.dilation[0], activation.name)
    operands: Operands = {
        "x": x.place,
        "x_plane": x.geometry.plane,
        "height": x.geometry.height,
        "width": x.geometry.width,
        "each": y.channels // x.channels,
        "room": site.scratch,
        "room_bytes": room.bytes,
        "room_line": room.line,
        "corner": room.corner,
        "phases": room.phases,
        "y": y.place,
        "y_plane": y.geometry.plane,
        "channels": y.channels,
        "lines": y.geometry.height,
        "columns": y.geometry.width,
        "plain": min(y.geometry.height, max(0, (prod(y.shape[1:]) - whole) // y.geometry.width + 1)),
        "below": room.line * o.stride[0],
        "offsets": room.offsets,
        "weights": np.ascontiguousarray(weights, dtype=np.float32),
        "weights_channel": 4 * weights.shape[1] if len(weights) > 1 else 0,
        "residual": site.sources[1].place if len(site.sources) > 1 else -1,
        "parameters": parameters(activation),
    }
    return Step(kernel, operands, note="channel by channel")
