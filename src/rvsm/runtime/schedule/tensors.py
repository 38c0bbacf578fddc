"""Operations on maps as tensors with strides: copies, products of matrices, normalization, constants and tables."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from rvsm.runtime.kernels import copies, reductions
from rvsm.runtime.kernels.contraction import Contraction as Product
from rvsm.runtime.kernels.jit import LINE
from rvsm.runtime.kernels.kernel import Operands
from rvsm.runtime.plan.operation import Operation
from rvsm.runtime.plan.operations import Concatenation, Flattening
from rvsm.runtime.plan.tensors import Constant, Contraction, Embedding, Normalization, Rearrangement
from rvsm.runtime.schedule.layout import Buffer, Geometry
from rvsm.runtime.schedule.limits import COPY, MULTIPLY, NANOSECOND, OBJECTS
from rvsm.runtime.schedule.packing import Integers, spans
from rvsm.runtime.schedule.step import Cost, Extent, Rule, Scratch, Site, Step
from rvsm.runtime.schedule.weightless import RULES as WEIGHTLESS
from rvsm.runtime.schedule.weightless import along, columns, copy, cost_of_columns, rows


def _shared(o: Rearrangement, source: Buffer, geometry: Geometry) -> int | None:
    """Return where the result is in the memory of its source, if it is a range of it, in bytes."""
    if not o.is_range or source.geometry.bordered or geometry.bordered:
        return None
    return 4 * geometry.unit * o.offset


def _flat(o: Flattening, source: Buffer, geometry: Geometry) -> int | None:
    """Return 0, if all numbers of a map are neighbours."""
    return None if source.geometry.bordered or geometry.bordered else 0


def _flatten(site: Site[Flattening]) -> list[Step]:
    shared = _flat(site.operation, site.sources[0], site.target.geometry) is not None
    return [] if shared else WEIGHTLESS[Flattening].steps(site)


def _plain(site: Site[Any]) -> tuple[Site[Any], list[Step], list[Step]]:
    """Return the operation on maps without border, with the steps that copy maps to such ones and back."""
    place, before, after = site.scratch, list[Step](), list[Step]()
    buffers = []
    for buffer in (*site.sources, site.target):
        if not buffer.geometry.bordered:
            buffers.append(buffer)
            continue
        plain = _without_border(buffer, place)
        place += plain.bytes
        buffers.append(plain)
        if buffer is site.target:
            after.append(_between(site, plain, buffer))
        else:
            before.append(_between(site, buffer, plain))
    return replace(site, sources=tuple(buffers[:-1]), target=buffers[-1]), before, after


def _without_border(buffer: Buffer, place: int) -> Buffer:
    g = buffer.geometry
    return Buffer(place, buffer.channels, Geometry(g.height, g.width, 0, 0, g.width, g.unit))


def _between(site: Site[Any], source: Buffer, target: Buffer) -> Step:
    """Return the step that copies a map to another geometry."""
    x, y = source.geometry, target.geometry
    lines, zeros = np.arange(x.height, dtype=np.int64), np.zeros(x.height, dtype=np.int64)
    table = np.stack([x.at(lines, zeros), y.at(lines, zeros)], axis=1)
    return copy(
        site.machine, source.place, target.place, channels=source.channels, planes=(x.plane, y.plane), table=table,
        width=x.width * x.unit, ragged=x.unit == 1,
    )  # fmt: skip


def _scratch(site: Site[Any]) -> Scratch | None:
    """Return the memory for maps without border."""
    needed = [_without_border(b, 0).bytes for b in (*site.sources, site.target) if b.geometry.bordered]
    return ("plain", sum(needed)) if needed else None


def _scratch_of_groups(site: Site[Concatenation]) -> Scratch | None:
    return _scratch(site) if site.operation.groups > 1 else None


def _rearrange(site: Site[Rearrangement]) -> list[Step]:
    if _shared(site.operation, site.sources[0], site.target.geometry) is not None:
        return []
    plain, before, after = _plain(site)
    o, unit = site.operation, site.target.geometry.unit
    steps = [prod(o.sizes[k + 1 :]) for k in range(len(o.sizes))]  # the result has all its numbers in order
    made = strided(site, plain.sources[0].place + 4 * unit * o.offset, plain.target.place, o.sizes, o.strides, steps)
    return [*before, made, *after]


def strided(  # noqa: PLR0917
    site: Site[Any], x: int, y: int, sizes: Sequence[int], x_strides: Sequence[int], y_strides: Sequence[int]
) -> Step:  # fmt: skip
    """Return the copy of an array with strides, which are in numbers of one image."""
    unit, lanes = site.target.geometry.unit, site.machine.lanes
    axes = [axis for axis in zip(sizes, x_strides, y_strides, strict=True) if axis[0] > 1] or [(1, 1, 1)]
    _, right, across = axes[-1]
    inner = "any" if across != 1 or right > 1 else "row" if right == 1 else "single"
    padded = [*[(1, 0, 0)] * (copies.AXES - len(axes)), *axes]
    bytes_of = np.array([axis[1:] for axis in padded], dtype=np.int64) * 4 * unit
    operands: Operands = {
        "x": x,
        "y": y,
        "ranges": _ranges([axis[0] for axis in padded], site.threads),
        "strides": bytes_of,
    }
    note = "vector of images" if unit > 1 else "single numbers" if inner == "any" else f"{lanes} lanes"
    return Step(copies.Strided(lanes, unit, inner), operands, note=note)


def _ranges(sizes: Sequence[int], threads: int) -> Integers:
    """Return the first and last index of each axis: for a single thread, then for each of several.

    The threads share the longest of the outer axes. Only if all of these are short, one thread makes the copy.
    """
    shared = max(range(len(sizes) - 1), key=lambda k: sizes[k])
    table = np.zeros((1 + threads, len(sizes), 2), dtype=np.int64)
    table[:, :, 1] = sizes
    table[1:, shared] = spans(sizes[shared], threads)
    return table


def _join(site: Site[Concatenation]) -> list[Step]:
    """Return the copies of parts whose groups of channels are interleaved."""
    groups = site.operation.groups
    if groups == 1:
        return WEIGHTLESS[Concatenation].steps(site)
    plain, before, after = _plain(site)
    whole, made, start = prod(plain.target.shape) // groups, list[Step](), 0
    for part in plain.sources:
        size = prod(part.shape) // groups
        target = plain.target.place + 4 * part.geometry.unit * start
        made.append(strided(site, part.place, target, (groups, size), (size, 1), (whole, 1)))
        made[-1].meet = False
        start += size
    made[-1].meet = True
    return [*before, *made, *after]


def _cost_of_joining(extent: Extent[Concatenation]) -> Cost:
    kept, seconds = _border_cost(extent)
    each = (OBJECTS + 4096) * (1 + len(extent.sources))
    return Cost(each + kept, kept, 4 * NANOSECOND * prod(extent.shape) + seconds)


def _contract(site: Site[Contraction]) -> list[Step]:
    plain, before, after = _plain(site)
    o, unit, lanes = site.operation, site.target.geometry.unit, site.machine.lanes
    size = (4, 4) if unit > 1 else (6, 4) if site.machine.registers >= 32 else (6, 2)
    if unit == 1:
        size = (size[0], min(size[1], max(1, o.sizes[3] // lanes)))
    bytes_of = 4 * unit
    names = ("a_o", "a_p", "a_m", "a_k", "b_o", "b_p", "b_k")
    operands: Operands = {
        "a": plain.sources[0].place + bytes_of * o.a_offset,
        "b": plain.sources[1].place + bytes_of * o.b_offset,
        "y": plain.target.place,
        **dict(zip("opmnk", o.sizes, strict=True)),
        **{name: bytes_of * s for name, s in zip(names, (*o.a_strides, *o.b_strides), strict=True)},
        "scale": np.array([o.scale], dtype=np.float32),
    }
    variant = Product(lanes, unit, *size)
    return [*before, Step(variant, operands, note=f"{size[0]}×{size[1]} tiles"), *after]


def _normalize(site: Site[Normalization]) -> list[Step]:
    o = site.operation
    assert site.weights is not None
    assert site.bias is not None
    operands = {
        **columns(site),
        "weights": site.weights.dense(),
        "bias": site.bias,
        "epsilon": np.array([o.epsilon], dtype=np.float32),
    }
    variant = reductions.Normalization(LINE, along(site.target), centered=o.centered)
    return [Step(variant, operands, note=f"{LINE} lanes")]


def _fill(site: Site[Constant]) -> list[Step]:
    assert site.weights is not None
    y = site.target
    operands = {**rows(y), "width": y.geometry.width, "values": site.weights.dense(), "y": y.at()}
    return [Step(copies.Fill(site.machine.lanes, y.geometry.unit), operands)]


def _look_up(site: Site[Embedding]) -> list[Step]:
    assert site.weights is not None
    plain, before, after = _plain(site)
    o, unit, y = site.operation, site.target.geometry.unit, plain.target
    operands: Operands = {
        "x": plain.sources[0].place,
        "y": y.place,
        "table": site.weights.dense(),
        "rows": o.rows,
        "features": o.features,
        "positions": y.geometry.width,
        "plane": y.geometry.plane,
    }
    return [*before, Step(copies.Lookup(site.machine.lanes, unit), operands), *after]


def _border_cost(extent: Extent[Any]) -> tuple[int, float]:
    """Return bytes and seconds of copies to maps without border and back, which vectors of images may need."""
    if extent.unit == 1:
        return 0, 0.0
    shapes = [*extent.sources, extent.shape]
    return sum(OBJECTS + 16 * shape[1] for shape in shapes), COPY * sum(map(prod, shapes))


def _cost_of_rearrangement(extent: Extent[Rearrangement]) -> Cost:
    kept, seconds = _border_cost(extent)
    return Cost(OBJECTS + 4096 + kept, kept, 4 * NANOSECOND * prod(extent.shape) + seconds)


def _cost_of_contraction(extent: Extent[Contraction]) -> Cost:
    kept, seconds = _border_cost(extent)
    o, p, m, n, k = extent.operation.sizes
    vectors = o * p * m * (n if extent.unit > 1 else -(-n // extent.machine.lanes))
    return Cost(OBJECTS + kept, kept, seconds + 4 * MULTIPLY * vectors * (k + 4))


def _cost_of_table(extent: Extent[Embedding] | Extent[Constant]) -> Cost:
    kept, seconds = (0, 0.0) if isinstance(extent.operation, Constant) else _border_cost(extent)
    table = 4 * prod(extent.operation.weight_shape(extent.sources))
    passing = kept + table // 2
    return Cost(OBJECTS + kept + table, passing, seconds + 4 * NANOSECOND * prod(extent.shape) * extent.unit)


RULES: dict[type[Operation], Rule] = {
    **WEIGHTLESS,
    Rearrangement: Rule(_rearrange, _cost_of_rearrangement, _scratch, _shared),
    Concatenation: Rule(_join, _cost_of_joining, _scratch_of_groups),
    Flattening: Rule(_flatten, WEIGHTLESS[Flattening].cost, shared=_flat),
    Contraction: Rule(_contract, _cost_of_contraction, _scratch),
    Normalization: Rule(_normalize, cost_of_columns),
    Constant: Rule(_fill, _cost_of_table),
    Embedding: Rule(_look_up, _cost_of_table, _scratch),
}
