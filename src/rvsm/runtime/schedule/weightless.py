"""Steps that need no weights: copies of all kinds, and the operations that combine and rearrange maps."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels import copies, pointwise, reductions
from rvsm.runtime.kernels.jit import LINE, Machine
from rvsm.runtime.kernels.kernel import Operands
from rvsm.runtime.plan.operation import Operation
from rvsm.runtime.plan.operations import AdaptivePooling, Concatenation, Flattening, Pointwise, Pooling, Softmax
from rvsm.runtime.plan.tensors import Normalization
from rvsm.runtime.schedule import windows
from rvsm.runtime.schedule.layout import Buffer, Geometry
from rvsm.runtime.schedule.limits import NANOSECOND, OBJECTS
from rvsm.runtime.schedule.step import Cost, Extent, Rule, Site, Step, parameters


def border(machine: Machine, images: int, index: int, buffer: Buffer, *, last: bool, entering: bool) -> Step:
    """Return the step that copies an input into the arena or an output out of it; with ``last``, channels come last."""
    operands = {**rows(buffer), "index": index, "place": buffer.at(), "width": buffer.geometry.width}
    kind = copies.Enter if entering else copies.Leave
    return Step(kind(machine.lanes, images, last), operands, meet=entering)


def rows(buffer: Buffer) -> Operands:
    """Return the operands of a kernel that processes the rows of a map, float by float."""
    g = buffer.geometry
    return {"channels": buffer.channels, "height": g.height, "width": g.width * g.unit, "row": g.row, "plane": g.plane}


def copy(
    machine: Machine, source: int, target: int, *, channels: int, planes: tuple[int, int],
    table: NDArray[np.int64], width: int, step: int = 1, ragged: bool, own: int = 0,
    ranges: NDArray[np.int64] | None = None,
) -> Step:  # fmt: skip
    """Return the step that copies the rows in ``table`` (place in the source, place in the target) of every channel.

    With ``own`` each thread makes its own copies, ``own`` bytes after those of the previous thread. It copies its
    ``ranges`` of the table, of which the first is for a single thread.
    """
    operands = copy_operands(source, target, channels=channels, planes=planes, table=table, own=own)
    variant = copies.Copy(machine.lanes, step, ragged, own > 0)
    ranges = np.array([[0, len(table)]], dtype=np.int64) if ranges is None else np.ascontiguousarray(ranges)
    return Step(variant, {**operands, "ranges": ranges, "width": width}, meet=own == 0)


def copy_operands(
    source: int, target: int, *, channels: int, planes: tuple[int, int], table: NDArray[np.int64], own: int
) -> Operands:
    """Return the operands that copies of rows and shifts of planes share; see ``copy``."""
    return {
        "x": source,
        "y": target,
        "y_thread": own,
        "channels": channels,
        "x_plane": planes[0],
        "y_plane": planes[1],
        "table": np.ascontiguousarray(table, dtype=np.int64),
    }


def mask_bits(inside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return rows of booleans, one for each lane, as two bytes each, with the first lane in the lowest bit."""
    whole = inside.shape[1] % 8 == 0  # then all rows at once, which is much faster
    bits = np.packbits(inside, axis=None if whole else 1, bitorder="little").reshape(len(inside), -1)
    result = np.zeros((len(inside), 2), dtype=np.uint8)
    result[:, : bits.shape[1]] = bits
    return result


def _combine(site: Site[Pointwise]) -> list[Step]:
    o, y, lanes = site.operation, site.target, site.machine.lanes
    maps = site.sources
    if all(m.shape == y.shape and not m.geometry.bordered for m in maps):
        y, maps = _as_rows(y, lanes), tuple(_as_rows(m, lanes) for m in maps)
    g = y.geometry
    operands: dict[str, int | NDArray[np.generic]] = {
        **rows(y), "y": y.at(), "parameters": parameters(o.activation)
    }  # fmt: skip
    spread = ""
    for name, m in zip("abc", maps, strict=False):
        operands[name] = m.at()
        operands[f"{name}_row"] = m.geometry.row if m.geometry.height == g.height else 0
        operands[f"{name}_plane"] = m.geometry.plane if m.channels == y.channels else 0
        spread += "f" if m.geometry.width == g.width else "s"
    variant = pointwise.Pointwise(lanes, o.operation, spread, ragged=g.unit == 1, activation=o.activation.name)
    return [Step(variant, operands, note=f"{lanes} lanes")]


def _as_rows(buffer: Buffer, lanes: int) -> Buffer:
    """Return a map without border as long rows: where nothing is broadcast, its sizes do not matter."""
    channels, height, width = buffer.shape
    unit = buffer.geometry.unit
    if height * width * unit < 4 * lanes:
        channels, width = 1, channels * width
    return Buffer(buffer.place, channels, Geometry(1, height * width, 0, 0, height * width, unit))


def _pool(site: Site[Pooling | AdaptivePooling]) -> list[Step]:
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
        # An empty window must not be divided by zero.
        "lines": np.stack([g.down(top), h.down(np.arange(h.height)), tall, np.maximum(1, across)], axis=1),
        "height": h.height,
        "columns": np.stack([g.right(left), h.right(np.arange(h.width)), wide, np.maximum(1, along)], axis=1),
        "width": h.width,
        "row": g.row * dilation[0],
        "column": 4 * g.unit * dilation[1],
    }
    note = "vector of images" if g.unit > 1 else "scalar"
    return [Step(reductions.Pooling(site.machine.lanes, o.mode, g.unit), operands, note=note)]


def _concatenate(site: Site[Concatenation]) -> list[Step]:
    g = site.target.geometry
    table = np.array([(g.at(0, 0), g.at(0, 0))], dtype=np.int64)  # a plane as one row; the borders inside are zero
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
    """Return the step that copies all channels, rows and columns into planes of one position."""
    x, y = site.sources[0], site.target
    g, plane = x.geometry, y.geometry.plane
    line, column = (axis.reshape(-1) for axis in np.mgrid[0 : g.height, 0 : g.width])
    table = np.stack([g.at(line, column), plane * (line * g.width + column)], axis=1)
    flat = copy(
        site.machine, x.place, y.at(), channels=x.channels, planes=(g.plane, plane * g.height * g.width),
        table=table, width=g.unit, ragged=g.unit == 1,
    )  # fmt: skip
    return [flat]


def columns(site: Site[Softmax] | Site[Normalization]) -> Operands:
    """Return the operands of a kernel that computes with all channels of a group, at every position."""
    groups = site.operation.groups
    return {
        **rows(site.target),
        "x": site.sources[0].at(),
        "y": site.target.at(),
        "groups": groups,
        "channels": site.target.channels // groups,
    }


def along(buffer: Buffer) -> bool:
    """Return whether vectors run along the channels, which lie beside each other if there is a single position."""
    g = buffer.geometry
    return g.unit * g.height * g.width == 1


def _softmax(site: Site[Softmax]) -> list[Step]:
    o = site.operation
    variant = reductions.Softmax(LINE, along(site.target), log=o.log, masked=o.masked)
    return [Step(variant, columns(site), note=f"{LINE} lanes")]


def _cost_of_windows(extent: Extent[Pooling | AdaptivePooling]) -> Cost:
    """Return the cost of a pooling: single images are computed number by number, as slowly as vectors of images."""
    o, shape, sizes = extent.operation, extent.shape, extent.sources[0][1:]
    if isinstance(o, Pooling):
        reach = [min(o.kernel[k], sizes[k]) * shape[1 + k] for k in range(2)]
    else:
        reach = [sizes[k] + shape[1 + k] for k in range(2)]
    return Cost(OBJECTS + 32 * sum(shape[1:]), 128 * sum(shape[1:]), NANOSECOND * shape[0] * prod(reach))


def cost_of_columns(extent: Extent[Softmax] | Extent[Normalization]) -> Cost:
    """Return the cost of three passes over the channels, one with exponentials; each row begins a new vector."""
    channels, height, width = extent.shape
    vectors = channels * height * (width if extent.unit > 1 else -(-width // extent.machine.lanes))
    return Cost(OBJECTS + 8 * channels, 8 * channels, 20 * NANOSECOND * vectors)


def _cost_of_rows(extent: Extent[Pointwise]) -> Cost:
    """Return the cost of a pass over all rows, each of which begins a new vector."""
    channels, height, width = extent.shape
    vectors = channels * height * (width if extent.unit > 1 else -(-width // extent.machine.lanes))
    return Cost(OBJECTS, 0, 4 * NANOSECOND * vectors)


def _cost_of_flattening(extent: Extent[Flattening]) -> Cost:
    positions = prod(extent.sources[0][1:])
    return Cost(OBJECTS + 16 * positions, 64 * positions, 2 * NANOSECOND * prod(extent.shape))


RULES: dict[type[Operation], Rule] = {
    Pointwise: Rule(_combine, _cost_of_rows),
    Pooling: Rule(lambda site: windows.pooling(site) or _pool(site), _cost_of_windows, windows.scratch),
    AdaptivePooling: Rule(_pool, _cost_of_windows),
    Concatenation: Rule(
        _concatenate, lambda extent: Cost(OBJECTS * (1 + len(extent.sources)), 0, 2 * NANOSECOND * extent.vectors)
    ),
    Softmax: Rule(_softmax, cost_of_columns),
    Flattening: Rule(_flatten, _cost_of_flattening),
}
