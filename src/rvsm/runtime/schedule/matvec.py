"""Layers with a single position, for single images: linear layers, and convolutions as large as their map."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.kernels.kernel import Operands
from rvsm.runtime.kernels.matvec import DenseMatVec, SparseMatVec
from rvsm.runtime.plan.operation import Shape
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.schedule.choice import DENSE_ABOVE, SPARSE_BELOW, clear_choice
from rvsm.runtime.schedule.layout import aligned
from rvsm.runtime.schedule.limits import MULTIPLY, NANOSECOND, OBJECTS
from rvsm.runtime.schedule.packing import Floats, Integers
from rvsm.runtime.schedule.step import Cost, Extent, Site, Step, parameters
from rvsm.runtime.schedule.tiling import fused

BLOCKS = (8, 4, 2, 1)  # vectors of outputs that are computed together
FILLED = 1.15  # the most that a larger block may add to the outputs
NO_ROWS = np.zeros(1, np.int64)


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix as a kernel reads it: dense, in blocks of so many ``vectors`` of outputs, or sparse, by ``rows``."""

    vectors: int
    numbers: NDArray[Any]
    rows: Integers
    bias: Floats


def fits(site: Site[Convolution]) -> bool:
    """Return whether a convolution is computed as a matrix times a vector."""
    return suits(site.operation, site.sources[0].shape, site.target.shape, site.sources[0].geometry.unit)


def suits(o: Convolution, source: Shape, shape: Shape, unit: int) -> bool:
    """Return whether a row of weights multiplies all numbers of the input, in their order in memory."""
    whole = o.kernel == source[1:] and o.padding == (0, 0) and (o.kernel == (1, 1) or o.dilation == (1, 1))
    return unit == 1 and o.groups == 1 and shape[1:] == (1, 1) and whole


def matrix(site: Site[Convolution]) -> Matrix:
    """Return the matrix of a layer for the faster kernel, which is tried where the density does not say."""
    assert site.weights is not None
    assert site.bias is not None
    weights, lanes = site.weights.dense().reshape(len(site.bias), -1), site.machine.lanes
    bias = np.zeros(_rounded(len(weights), lanes), np.float32)
    bias[: len(weights)] = site.bias
    make = {"sparse": _sparse, "dense": _dense}
    way = clear_choice(site)
    found = [make[each](weights, bias, lanes) for each in ((way,) if way is not None else make)]
    return min(found, key=lambda each: step(site, each).seconds(aligned(site.arena_bytes)) if way is None else 0.0)


def _dense(weights: Floats, bias: Floats, lanes: int) -> Matrix:
    vectors = vectors_together(len(weights), lanes)
    return Matrix(vectors, by_column(weights, lanes * vectors), NO_ROWS, bias)


def by_column(weights: Floats, size: int) -> Floats:
    """Return a matrix in blocks of ``size`` outputs, each stored column after column; missing outputs are zero."""
    outputs, inputs = weights.shape
    filled = np.zeros((_rounded(outputs, size), inputs), np.float32)
    filled[:outputs] = weights
    return np.ascontiguousarray(filled.reshape(-1, size, inputs).transpose(0, 2, 1))


def _sparse(weights: Floats, bias: Floats, lanes: int) -> Matrix:
    row, column = np.nonzero(weights)
    counts = np.bincount(row, minlength=len(weights))
    records = -(-counts // lanes)
    first = np.concatenate([[0], np.cumsum(records)])
    within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    place, lane = first[row] + within // lanes, within % lanes
    numbers = np.zeros((int(first[-1]), 2, lanes), np.int32)
    numbers[:, 0] = -1  # not an input: zero times an infinite one would be NaN
    numbers[place, 0, lane] = column
    numbers[place, 1, lane] = weights[row, column].view(np.int32)
    return Matrix(0, numbers, first * (8 * lanes), bias)


def vectors_together(outputs: int, lanes: int, most: int = BLOCKS[0]) -> int:
    """Return how many vectors of outputs a block has, at most ``most``."""
    least = _rounded(outputs, lanes)
    return next(size for size in BLOCKS if size <= most and _rounded(outputs, lanes * size) <= FILLED * least)


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def step(site: Site[Convolution], packed: Matrix) -> Step:
    """Return the step that multiplies a matrix by the input."""
    x, activation, lanes = site.sources[0], fused(site.operation.activation), site.machine.lanes
    operands: Operands = {
        "x": x.place,
        "y": site.target.place,
        "residual": site.sources[1].place if len(site.sources) > 1 else -1,
        "matrix": packed.numbers,
        "rows": packed.rows,
        "bias": packed.bias,
        "inputs": prod(x.shape),
        "outputs": site.target.channels,
        "parameters": parameters(activation),
    }
    if packed.vectors:
        dense = DenseMatVec(lanes, activation.name, packed.vectors)
        return Step(dense, operands, note=f"dense matrix × vector, {packed.vectors * lanes} outputs at once")
    return Step(SparseMatVec(lanes, activation.name), operands, note="sparse matrix × vector")


def cost(extent: Extent[Convolution]) -> Cost:
    """Return the cost of a matrix times a vector: the matrix in one form, and while it is made, in both."""
    outputs, lanes = extent.operation.channels, extent.machine.lanes
    weights = prod(extent.operation.weight_shape(extent.sources))
    density = extent.nonzero / weights
    inputs = weights // outputs
    blocks = _rounded(outputs, lanes * vectors_together(outputs, lanes))
    dense = 4 * inputs * blocks if density > SPARSE_BELOW else 0
    sparse = 8 * (extent.nonzero + lanes * outputs) if density < DENSE_ABOVE else 0
    kept = OBJECTS + max(dense, sparse) + 8 * outputs + 4 * _rounded(outputs, lanes)
    passing = 8 * weights + dense + sparse + 48 * extent.nonzero + 64 * outputs
    numbers = weights if density >= DENSE_ABOVE else extent.nonzero
    return Cost(kept, passing, MULTIPLY * numbers + NANOSECOND * outputs)
