"""Steps that need no weights: copies of all kinds, and the operations that combine and rearrange maps."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels import copies, pooling, softmax
from rvsm.runtime.kernels import pointwise as arithmetic
from rvsm.runtime.kernels.jit import Machine
from rvsm.runtime.kernels.kernel import Operands
from rvsm.runtime.plan.operations import AdaptivePooling, Concatenation, Flattening, Pointwise, Pooling
from rvsm.runtime.plan.softmax import Softmax
from rvsm.runtime.schedule.layout import Buffer
from rvsm.runtime.schedule.limits import NANOSECOND, OBJECTS
from rvsm.runtime.schedule.step import Cost, Extent, Rule, Site, Step, parameters


def border(machine: Machine, images: int, index: int, buffer: Buffer, *, last: bool, entering: bool) -> Step:
    """Return the step that brings an input into the arena, or an output out of it, with its channels ``last``."""
    g = buffer.geometry
    operands: Operands = {
        "index": index,
        "place": buffer.at(),
        "channels": buffer.channels,
        "height": g.height,
        "width": g.width,
        "row": g.row,
        "plane": g.plane,
    }
    kind = copies.Enter if entering else copies.Leave
    return Step(kind(machine.lanes, images, last), operands, meet=entering)


def copy(
    machine: Machine, source: int, target: int, *, channels: int, planes: tuple[int, int],
    table: NDArray[np.int64], width: int, step: int = 1, ragged: bool, own: int = 0,
) -> Step:  # fmt: skip
    """Return the step that copies the rows in ``table`` (place in the source, place in the target) of every channel.

    With ``own`` each thread makes copies of its own, so many bytes after those of the thread before.
    """
    operands: Operands = {
        "x": source,
        "y": target,
        "y_thread": own,
        "channels": channels,
        "x_plane": planes[0],
        "y_plane": planes[1],
        "table": np.ascontiguousarray(table, dtype=np.int64),
        "rows": len(table),
        "width": width,
    }
    return Step(copies.Copy(machine.lanes, step, ragged, own > 0), operands, meet=own == 0)


def shift(
    machine: Machine, source: int, target: int, *, channels: int, planes: tuple[int, int],
    table: NDArray[np.int64], masks: NDArray[np.uint8], own: int, spans: NDArray[np.int64],
) -> Step:  # fmt: skip
    """Return the step that makes shifted copies of planes, for each thread ``own`` bytes after those of the one before.

    ``table`` has for each copy its first place in the source and in the target; ``masks`` (copies × vectors × 2 bytes)
    say which positions are copied, the others becoming zero; ``spans`` which positions a thread needs, alone or as one
    of several.
    """
    lanes, vectors = machine.lanes, masks.shape[1]
    operands: Operands = {
        "x": source,
        "y": target,
        "y_thread": own,
        "channels": channels,
        "x_plane": planes[0],
        "y_plane": planes[1],
        "table": np.ascontiguousarray(table, dtype=np.int64),
        "masks": masks,
        "copies": len(table),
        "vectors": vectors,
        "ranges": np.stack([spans[:, 0] // lanes, np.minimum(vectors, -(-spans[:, 1] // lanes))], axis=1),
    }
    return Step(copies.Shift(lanes), operands, meet=False)


def mask_bits(inside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return, for rows of as many truths as there are lanes, two bytes each, the first lane in the lowest bit."""
    whole = inside.shape[1] % 8 == 0  # all at once, which is much faster
    bits = np.packbits(inside, axis=None if whole else 1, bitorder="little").reshape(len(inside), -1)
    result = np.zeros((len(inside), 2), dtype=np.uint8)
    result[:, : bits.shape[1]] = bits
    return result


def _combine(site: Site[Pointwise]) -> list[Step]:
    """Return the step for activation(a ∘ b)."""
    o, a, b = site.operation, site.sources[0], site.sources[-1]
    g = a.geometry
    variant = arithmetic.Pointwise(
        site.machine.lanes, o.operation, b.geometry != g, ragged=g.unit == 1, activation=o.activation.name
    )
    operands: Operands = {
        "a": a.at(),
        "b": b.at(),
        "y": site.target.at(),
        "channels": a.channels,
        "height": g.height,
        "width": g.width * g.unit,
        "row": g.row,
        "plane": g.plane,
        "b_plane": b.geometry.plane,
        "parameters": parameters(o.activation),
    }
    return [Step(variant, operands, note=f"{site.machine.lanes} lanes")]


def _pool(site: Site[Pooling | AdaptivePooling]) -> list[Step]:
    """Return the step for the maximum or the mean of windows."""
    o, x, y = site.operation, site.sources[0], site.target
    g, h = x.geometry, y.geometry
    top, tall, across = o.windows(g.height, h.height, 0).T
    left, wide, along = o.windows(g.width, h.width, 1).T
    dilation = o.dilation if isinstance(o, Pooling) else (1, 1)
    operands: Operands = {
        "x": x.place,
        "y": y.place,
        "channels": x.channels,
        "x_plane": g.plane,
        "y_plane": h.plane,
        # An empty window, which counts nothing, must not be divided by nothing.
        "lines": np.stack([g.down(top), h.down(np.arange(h.height)), tall, np.maximum(1, across)], axis=1),
        "height": h.height,
        "columns": np.stack([g.right(left), h.right(np.arange(h.width)), wide, np.maximum(1, along)], axis=1),
        "width": h.width,
        "row": g.row * dilation[0],
        "column": 4 * g.unit * dilation[1],
    }
    note = "vector of images" if g.unit > 1 else "scalar"
    return [Step(pooling.Pooling(site.machine.lanes, o.mode, g.unit), operands, note=note)]


def _concatenate(site: Site[Concatenation]) -> list[Step]:
    """Return the steps that copy each part to its channels."""
    g = site.target.geometry
    table = np.array([(g.at(0, 0), g.at(0, 0))], dtype=np.int64)  # a plane as one row: the borders within are zero
    width = g.unit * ((g.height - 1) * g.pitch + g.width)
    steps, target = [], site.target.place
    for part in site.sources:
        step = copy(
            site.machine, part.place, target, channels=part.channels, planes=(g.plane, g.plane), table=table,
            width=width, ragged=g.unit == 1,
        )  # fmt: skip
        step.meet = False
        steps.append(step)
        target += part.channels * g.plane
    return steps


def _flatten(site: Site[Flattening]) -> list[Step]:
    """Return the step that lays channels, rows and columns one after the other; targets are planes of one position."""
    x, y = site.sources[0], site.target
    g, plane = x.geometry, y.geometry.plane
    line, column = (axis.reshape(-1) for axis in np.mgrid[0 : g.height, 0 : g.width])
    table = np.stack([g.at(line, column), plane * (line * g.width + column)], axis=1)
    step = copy(
        site.machine, x.place, y.at(), channels=x.channels, planes=(g.plane, plane * g.height * g.width),
        table=table, width=g.unit, ragged=g.unit == 1,
    )  # fmt: skip
    return [step]


def _softmax(site: Site[Softmax]) -> list[Step]:
    """Return the step for the softmax over channels."""
    x, g, lanes = site.sources[0], site.target.geometry, site.machine.lanes
    operands: Operands = {
        "x": x.at(),
        "y": site.target.at(),
        "channels": x.channels,
        "height": g.height,
        "width": g.width * g.unit,
        "row": g.row,
        "plane": g.plane,
    }
    return [Step(softmax.Softmax(lanes, site.operation.log, g.unit == 1), operands, note=f"{lanes} lanes")]


def _cost_of_windows(extent: Extent[Pooling | AdaptivePooling]) -> Cost:
    """Return the cost of a pooling: single images go one number at a time, and take as long as vectors of images."""
    o, shape, sizes = extent.operation, extent.shape, extent.sources[0][1:]
    if isinstance(o, Pooling):
        reach = [min(o.kernel[k], sizes[k]) * shape[1 + k] for k in range(2)]
    else:
        reach = [sizes[k] + shape[1 + k] for k in range(2)]
    return Cost(OBJECTS + 32 * sum(shape[1:]), 128 * sum(shape[1:]), NANOSECOND * shape[0] * prod(reach))


def _cost_of_softmax(extent: Extent[Softmax]) -> Cost:
    """Return the cost of three walks over the channels, one of them with exponentials; each row begins a vector."""
    channels, height, width = extent.shape
    vectors = channels * height * (width if extent.unit > 1 else -(-width // extent.machine.lanes))
    return Cost(OBJECTS, 0, 20 * NANOSECOND * vectors)


def _cost_of_flattening(extent: Extent[Flattening]) -> Cost:
    positions = prod(extent.sources[0][1:])
    return Cost(OBJECTS + 16 * positions, 64 * positions, 2 * NANOSECOND * prod(extent.shape))


POINTWISE = Rule(_combine, lambda extent: Cost(OBJECTS, 0, 4 * NANOSECOND * extent.vectors))
POOLING = Rule(_pool, _cost_of_windows)
CONCATENATION = Rule(
    _concatenate,
    lambda extent: Cost(OBJECTS * (1 + len(extent.sources)), 0, 2 * NANOSECOND * extent.vectors),
)
SOFTMAX = Rule(_softmax, _cost_of_softmax)
FLATTENING = Rule(_flatten, _cost_of_flattening)
