"""Steps that copy: arrays into the arena and out of it, rows and planes from map to map."""

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels import copies as kernels
from rvsm.runtime.kernels.jit import Machine
from rvsm.runtime.kernels.kernel import Operands
from rvsm.runtime.schedule.layout import Buffer
from rvsm.runtime.schedule.step import Step


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
    kind = kernels.Enter if entering else kernels.Leave
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
    return Step(kernels.Copy(machine.lanes, step, ragged, own > 0), operands, meet=own == 0)


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
    return Step(kernels.Shift(lanes), operands, meet=False)


def mask_bits(inside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return, for rows of as many truths as there are lanes, two bytes each, the first lane in the lowest bit."""
    whole = inside.shape[1] % 8 == 0  # all at once, which is much faster
    bits = np.packbits(inside, axis=None if whole else 1, bitorder="little").reshape(len(inside), -1)
    result = np.zeros((len(inside), 2), dtype=np.uint8)
    result[:, : bits.shape[1]] = bits
    return result
