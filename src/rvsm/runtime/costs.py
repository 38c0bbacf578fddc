"""What a program will take, from shapes and numbers of weights alone: known before anything is built.

A small file can describe a large computation. Therefore the bytes and the seconds of each operation are estimated
first, and what exceeds a limit is refused with a sentence. Bytes are meant to be upper bounds; seconds are rough, on
one thread, for one chunk: a vector of images, or a single one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from rvsm.runtime import convolve
from rvsm.runtime.choice import DENSE_ABOVE, SPARSE_BELOW
from rvsm.runtime.jit import Machine
from rvsm.runtime.layout import TooLargeError
from rvsm.runtime.operations import AdaptivePooling, Concatenation, Convolution, Flattening, Operation, Pooling, Shape
from rvsm.runtime.plan import Plan

NANOSECOND = 1e-9
MULTIPLY = 0.25e-9  # seconds of a multiply-add of vectors
COPY = 8e-9  # of a vector that is copied: those that matter do not fit into a cache
PAGE = 0.25e-9  # of a byte that is used for the first time
OBJECTS = 20_000  # bytes of Python's own for one operation


@dataclass(frozen=True)
class Limit:
    """What a network may take, so that a small file cannot fill the memory or compute for hours.

    ``memory`` is in bytes: tables, weights and activations for one call. ``seconds`` are, by a rough estimate, those of
    loading, and those of any single operation on one image: a call answers an interrupt after each operation.
    """

    memory: int = 8 << 30
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.memory > 0 or not self.seconds > 0:
            raise ValueError(f"a limit must be larger than 0 but is {self}")


@dataclass(frozen=True)
class Cost:
    """Bytes that an operation keeps, bytes that it needs while it is built, and seconds of one chunk."""

    kept: int
    passing: int
    seconds: float


def costs(plan: Plan, unit: int, machine: Machine) -> list[Cost]:
    """Return the cost of each operation; positions are ``unit`` images wide."""
    result = []
    for k, operation in enumerate(plan.operations):
        sources, shape = [plan.shapes[value] for value in operation.sources()], plan.shapes[plan.value_of(k)]
        if isinstance(operation, Convolution):
            nonzero = len(plan.weights[k].values)
            result.append(_convolution(operation, sources[0], shape, nonzero, unit=unit, machine=machine))
        else:
            result.append(_simple(operation, sources, shape, unit=unit, machine=machine))
    return result


def check(plan: Plan, found: Sequence[Cost], limit: Limit, *, unit: int, activations: int, taken: int = 0) -> int:
    """Return the bytes that a program will keep; raise TooLargeError if it would exceed the limit.

    ``activations`` are the bytes of one call, and ``taken`` those that another layout of the same network keeps.
    """
    images = f"{unit} images at a time" if unit > 1 else "one image at a time"
    for operation, cost in zip(plan.operations, found, strict=True):
        if cost.seconds > limit.seconds:
            raise TooLargeError(
                f"{operation.name!r} would take about {cost.seconds:,.0f} seconds for {images}, and the limit is"
                f" {limit.seconds:g}; to allow more, use limit=rvsm.runtime.Limit(seconds=…)"
            )
    building = NANOSECOND * sum(cost.kept + cost.passing for cost in found)
    if building > limit.seconds:
        raise TooLargeError(
            f"the network would take about {building:,.0f} seconds to load, and the limit is {limit.seconds:g}; to"
            " allow more, use limit=rvsm.runtime.Limit(seconds=…)"
        )
    ends = [prod(shape) for shape in (*plan.inputs, *(plan.shapes[output.value] for output in plan.outputs))]
    kept = activations + sum(cost.kept for cost in found)
    needed = taken + kept + max((cost.passing for cost in found), default=0) + 8 * unit * max(ends)
    if needed > limit.memory:
        raise TooLargeError(
            f"the network would need {needed / (1 << 30):,.1f} GiB of memory for {images}, and the limit is"
            f" {limit.memory / (1 << 30):,.1f} GiB; to allow more, use limit=rvsm.runtime.Limit(memory=…), in bytes"
        )
    return kept


def work(plan: Plan, found: Sequence[Cost], *, unit: int, activations: int) -> float:
    """Return about how many seconds the first chunk takes, with inputs and outputs on their way in and out."""
    ends = (*plan.inputs, *(plan.shapes[output.value] for output in plan.outputs))
    return 2 * NANOSECOND * unit * sum(map(prod, ends)) + PAGE * activations + sum(cost.seconds for cost in found)


def _simple(operation: Operation, sources: Sequence[Shape], shape: Shape, *, unit: int, machine: Machine) -> Cost:
    """Return the cost of an operation without weights."""
    vectors = prod(shape) if unit > 1 else -(-prod(shape) // machine.lanes)
    match operation:
        case Pooling():
            # one number at a time in single images, and so as long as a vector of images takes
            reach = [min(operation.kernel[k], sources[0][1 + k]) * shape[1 + k] for k in range(2)]
            return Cost(OBJECTS + 32 * sum(shape[1:]), 128 * sum(shape[1:]), NANOSECOND * shape[0] * prod(reach))
        case AdaptivePooling():
            reach = [sources[0][1 + k] + shape[1 + k] for k in range(2)]
            return Cost(OBJECTS + 32 * sum(shape[1:]), 128 * sum(shape[1:]), NANOSECOND * shape[0] * prod(reach))
        case Flattening():
            positions = prod(sources[0][1:])
            return Cost(OBJECTS + 16 * positions, 64 * positions, 2 * NANOSECOND * prod(shape))
        case Concatenation():
            return Cost(OBJECTS * (1 + len(sources)), 0, 2 * NANOSECOND * vectors)
    return Cost(OBJECTS, 0, 4 * NANOSECOND * vectors)


def _convolution(
    o: Convolution, source: Shape, shape: Shape, nonzero: int, *, unit: int, machine: Machine
) -> Cost:  # fmt: skip
    """Return the cost of a convolution: its streams of weights, its tiles, and the copies of its input."""
    weights, taps = prod(o.weight_shape(source)), prod(o.kernel)
    density = nonzero / weights
    sparse = nonzero if density < DENSE_ABOVE else 0  # records, if it is sparse and if it is dense: both may be tried
    dense = weights if density > SPARSE_BELOW else 0
    whole_blocks = (o.channels // o.groups) % 4 == 0
    stream = max((8 + 3) * sparse, (5 + 2 if whole_blocks else 8 + 3) * dense)  # and where each pass begins
    records = max(sparse, dense // 4 if whole_blocks else dense)
    positions = shape[1] * shape[2]
    vectors = positions if unit > 1 else -(-positions // machine.lanes)
    streams = 1
    if unit > 1:
        streams = max(prod(map(len, convolve.bands(machine, shape[1:], block))) for block in (1, 2, 4))
    kept = OBJECTS * streams + streams * (stream + 64 * o.channels) + 16 * taps + 40 * vectors
    passing = 16 * weights + 64 * records + 64 * taps + 8 * weights // o.channels + 64 * vectors
    seconds = MULTIPLY * vectors * (weights if density >= DENSE_ABOVE else nonzero) + NANOSECOND * vectors * o.channels
    if unit == 1 and not convolve.in_place(o, shape[1:]):
        copies = convolve.phase_count(o, shape[2])
        below = 0 if shape[2] <= convolve.SHORT else o.dilation[0] * (o.kernel[0] - 1) // o.stride[0]
        lines = shape[1] + below
        kept += copies * (16 + max(16 * lines, 2 * -(-lines * shape[2] // machine.lanes)))
        each = lines * shape[2]  # positions of a copy; masks are made for some at a time
        passing += copies * (64 + 64 * lines + each) + 8 * min(max(convolve.SOME, each), copies * each)
        vectors = -(-each // machine.lanes) if o.stride[1] <= 2 else each  # a larger stride is copied one by one
        seconds += COPY * source[0] * copies * vectors
    return Cost(kept, passing, seconds)
