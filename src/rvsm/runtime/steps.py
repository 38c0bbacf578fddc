"""Steps: what the player performs one after the other; a kernel with the data that it works on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.activations import Activation
from rvsm.runtime.jit import Machine
from rvsm.runtime.kernels import borders, pooling, rows
from rvsm.runtime.layout import Buffer
from rvsm.runtime.operations import AdaptivePooling, Pointwise, Pooling


@dataclass(eq=False)
class Step:
    """A kernel, its arguments by slot (numbers, or arrays whose address is meant), and what must follow.

    ``meet`` says that all threads must be done before the next step begins.
    """

    kernel: str
    write: Callable[[], str]
    slots: tuple[str, ...]
    arguments: Mapping[str, int | NDArray[np.generic]]
    meet: bool = True
    operation: int = -1
    note: str = ""
    outputs: int = 0
    tiles: int = 0
    tile_positions: int = 0


def parameters(activation: Activation) -> NDArray[np.float32]:
    """Return the parameters of an activation for a kernel."""
    return np.array([activation.a, activation.b], dtype=np.float32)


def border(machine: Machine, images: int, index: int, buffer: Buffer, *, last: bool, entering: bool) -> Step:
    """Return the step that brings an input into the arena, or an output out of it, with its channels ``last``."""
    name, write = (borders.enter_name, borders.enter) if entering else (borders.leave_name, borders.leave)
    g = buffer.geometry
    arguments = {
        "index": index,
        "place": buffer.at(),
        "channels": buffer.channels,
        "height": g.height,
        "width": g.width,
        "row": g.row,
        "plane": g.plane,
    }
    return Step(
        name(machine.lanes, images, last=last),
        lambda: write(machine.lanes, images, last=last),
        borders.SLOTS,
        arguments,
        meet=entering,
    )


def pointwise(machine: Machine, operation: Pointwise, a: Buffer, b: Buffer | None, y: Buffer) -> Step:
    """Return the step for activation(a ∘ b)."""
    g = a.geometry
    broadcast = b is not None and b.geometry != g
    ragged = g.unit == 1
    lanes, kind, activation = machine.lanes, operation.operation, operation.activation.name

    def write() -> str:
        return rows.pointwise(lanes, operation=kind, broadcast=broadcast, ragged=ragged, activation=activation)

    name = rows.pointwise_name(lanes, operation=kind, broadcast=broadcast, ragged=ragged, activation=activation)
    arguments: dict[str, int | NDArray[np.generic]] = {
        "a": a.at(),
        "b": 0 if b is None else b.at(),
        "y": y.at(),
        "channels": a.channels,
        "height": g.height,
        "width": g.width * g.unit,
        "row": g.row,
        "plane": g.plane,
        "b_plane": 0 if b is None else b.geometry.plane,
        "parameters": parameters(operation.activation),
    }
    return Step(name, write, rows.POINTWISE_SLOTS, arguments, note=f"{machine.lanes} lanes")


def copy(
    machine: Machine, source: int, target: int, *, channels: int, planes: tuple[int, int],
    table: NDArray[np.int64], width: int, step: int, ragged: bool, own: int = 0,
) -> Step:  # fmt: skip
    """Return the step that copies the rows in ``table`` (place in the source, place in the target) of every channel.

    With ``own`` each thread makes copies of its own, so many bytes after those of the thread before.
    """
    arguments: dict[str, int | NDArray[np.generic]] = {
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
    name = rows.copy_name(machine.lanes, step=step, ragged=ragged, own=own > 0)

    def write() -> str:
        return rows.copy(machine.lanes, step=step, ragged=ragged, own=own > 0)

    return Step(name, write, rows.COPY_SLOTS, arguments, meet=own == 0)


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
    arguments: dict[str, int | NDArray[np.generic]] = {
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
    return Step(rows.shift_name(lanes), lambda: rows.shift(lanes), rows.SHIFT_SLOTS, arguments, meet=False)


def mask_bits(inside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return, for rows of as many truths as there are lanes, two bytes each, the first lane in the lowest bit."""
    whole = inside.shape[1] % 8 == 0  # all at once, which is much faster
    bits = np.packbits(inside, axis=None if whole else 1, bitorder="little").reshape(len(inside), -1)
    result = np.zeros((len(inside), 2), dtype=np.uint8)
    result[:, : bits.shape[1]] = bits
    return result


def concatenation(machine: Machine, parts: list[Buffer], y: Buffer) -> list[Step]:
    """Return the steps that copy each part to its channels."""
    g = y.geometry
    table = np.array([(g.at(0, 0), g.at(0, 0))], dtype=np.int64)  # a plane as one row: the borders within are zero
    width = g.unit * ((g.height - 1) * g.pitch + g.width)
    steps, channel = [], 0
    for part in parts:
        target = y.place + channel * g.plane
        steps.append(
            copy(machine, part.place, target, channels=part.channels, planes=(g.plane, g.plane), table=table,
                 width=width, step=1, ragged=g.unit == 1)
        )  # fmt: skip
        channel += part.channels
    for step in steps[:-1]:
        step.meet = False
    return steps


def flattening(machine: Machine, x: Buffer, y: Buffer) -> Step:
    """Return the step that lays channels, rows and columns one after the other; targets are planes of one position."""
    g, plane = x.geometry, y.geometry.plane
    line, column = (axis.reshape(-1) for axis in np.mgrid[0 : g.height, 0 : g.width])
    table = np.stack([g.at(line, column), plane * (line * g.width + column)], axis=1)
    return copy(
        machine, x.place, y.at(), channels=x.channels, planes=(g.plane, plane * g.height * g.width),
        table=table, width=g.unit, step=1, ragged=g.unit == 1,
    )  # fmt: skip


def pool(machine: Machine, operation: Pooling | AdaptivePooling, x: Buffer, y: Buffer) -> Step:
    """Return the step for the maximum or the mean of windows."""
    g, h = x.geometry, y.geometry
    top, tall, across = operation.windows(g.height, h.height, 0).T
    left, wide, along = operation.windows(g.width, h.width, 1).T
    # An empty window, which counts nothing, must not be divided by nothing.
    lines = np.stack([g.down(top), h.down(np.arange(h.height)), tall, np.maximum(1, across)], axis=1)
    columns = np.stack([g.right(left), h.right(np.arange(h.width)), wide, np.maximum(1, along)], axis=1)
    dilation = operation.dilation if isinstance(operation, Pooling) else (1, 1)
    arguments: dict[str, int | NDArray[np.generic]] = {
        "x": x.place,
        "y": y.place,
        "channels": x.channels,
        "x_plane": g.plane,
        "y_plane": h.plane,
        "lines": lines,
        "height": h.height,
        "columns": columns,
        "width": h.width,
        "row": g.row * dilation[0],
        "column": 4 * g.unit * dilation[1],
    }
    name = pooling.pooling_name(machine.lanes, kind=operation.mode, images=g.unit)

    def write() -> str:
        return pooling.pooling(machine.lanes, kind=operation.mode, images=g.unit)

    return Step(name, write, pooling.SLOTS, arguments, note="vector of images" if g.unit > 1 else "scalar")
