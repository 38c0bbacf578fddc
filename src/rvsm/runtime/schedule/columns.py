"""Dense layers with few positions, for single images: a matrix times a few columns."""

from collections.abc import Callable
from math import prod

import numpy as np

from rvsm.runtime.kernels.columns import DenseColumns
from rvsm.runtime.kernels.kernel import Operands
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.schedule.matvec import FILLED, by_column, vectors_together
from rvsm.runtime.schedule.packing import Floats, Integers
from rvsm.runtime.schedule.step import Site, Step, parameters
from rvsm.runtime.schedule.taps import Taps
from rvsm.runtime.schedule.tiling import fused


def fits(site: Site[Convolution], where: Taps) -> bool:
    """Return whether all positions fit one vector, and the inputs of an output follow each other at equal distances.

    Programs for several lengths of sequences share their weights, which are in the order of the general kernel.
    """
    o, lanes, g = site.operation, site.machine.lanes, site.target.geometry
    shared = site.packs is not None
    if shared or site.sources[0].geometry.unit > 1 or not suits(o, (g.height, g.width), lanes):
        return False
    count, step = len(where.offsets), _step(where)
    return where.plane == count * step and bool((where.offsets == np.arange(count) * step).all())


def suits(o: Convolution, output: tuple[int, int], lanes: int) -> bool:
    """Return whether a layer for single images has few enough positions, and outputs that fill a vector."""
    return o.groups == 1 and prod(output) <= lanes <= o.channels


def matrix_bytes(outputs: int, weights: int, lanes: int) -> int:
    """Return how many bytes the matrix has at most, with outputs that fill whole blocks."""
    return int(4 * FILLED * (weights // outputs) * -(-outputs // lanes) * lanes)


def step(site: Site[Convolution], where: Taps, weights: Callable[[], Floats]) -> Step:
    """Return the step of a dense layer."""
    assert site.bias is not None
    o, lanes, y = site.operation, site.machine.lanes, site.target
    positions, activation = y.geometry.height * y.geometry.width, fused(o.activation)
    sums = 16 if site.machine.registers >= 32 else 8  # in registers, at all positions
    vectors = vectors_together(o.channels, lanes, max(1, sums // positions))
    matrix = by_column(weights().reshape(o.channels, -1), lanes * vectors)
    operands: Operands = {
        "x": where.place,
        "x_thread": where.own,
        "step": _step(where),
        "y": y.place,
        "y_plane": y.geometry.plane,
        "residual": site.sources[1].place if len(site.sources) > 1 else -1,
        "matrix": matrix,
        "bias": site.bias,
        "inputs": matrix.shape[1],
        "outputs": o.channels,
        "parameters": parameters(activation),
    }
    kernel = DenseColumns(lanes, activation.name, vectors, positions)
    return Step(kernel, operands, note=f"dense matrix × {positions} columns, {vectors * lanes} outputs at once")


def spans(site: Site[Convolution], where: Taps) -> Integers:
    """Return the positions of the input that each thread needs: all of them."""
    g = site.target.geometry
    return np.array([[0, g.height * g.width + where.reach]] * (1 + site.threads), dtype=np.int64)


def _step(where: Taps) -> int:
    return where.plane // len(where.offsets)
