"""Limits on a network, checked from shapes and numbers of weights alone, before anything is built.

A small file can describe a large computation. Therefore the bytes and the seconds of each operation are estimated
first, and a network that exceeds a limit is refused with an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from rvsm.runtime.plan.plan import Plan
from rvsm.runtime.schedule.layout import TooLargeError
from rvsm.runtime.schedule.step import Cost

NANOSECOND = 1e-9
MULTIPLY = 0.25e-9  # seconds of a multiply-add of vectors
COPY = 8e-9  # seconds to copy a vector; large copies do not fit into a cache
PAGE = 0.25e-9  # seconds for the first use of a byte
OBJECTS = 20_000  # bytes of Python objects for one operation


@dataclass(frozen=True)
class Limit:
    """Limits on a network, so that a small file cannot fill the memory or compute for hours.

    ``memory`` is in bytes: tables, weights and activations for one call. ``seconds`` limits, by a rough estimate, the
    time of loading and of any single operation on one image: a call handles an interrupt after each operation.
    """

    memory: int = 8 << 30
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.memory > 0 or not self.seconds > 0:
            raise ValueError(f"a limit must be larger than 0 but is {self}")


def check(plan: Plan, costs: Sequence[Cost], limit: Limit, *, unit: int, activations: int, taken: int = 0) -> int:
    """Return the bytes that a program will keep; raise TooLargeError if it would exceed the limit.

    ``activations`` are the bytes of one call, and ``taken`` are those of another layout of the same network.
    """
    images = f"{unit} images at a time" if unit > 1 else "one image at a time"
    building = NANOSECOND * sum(cost.kept + cost.passing for cost in costs)
    named = zip((operation.name for operation in plan.operations), costs, strict=True)
    guesses = [(f"{name!r} would take", cost.seconds, f"for {images}") for name, cost in named]
    for subject, seconds, purpose in [*guesses, ("the network would take", building, "to load")]:
        if seconds > limit.seconds:
            raise TooLargeError(
                f"{subject} about {seconds:,.0f} seconds {purpose}, and the limit is {limit.seconds:g}; to allow more,"
                " use limit=rvsm.runtime.Limit(seconds=…)"
            )
    ends = [prod(shape) for shape in (*plan.inputs, *(plan.shapes[output.value] for output in plan.outputs))]
    kept = activations + sum(cost.kept for cost in costs)
    needed = taken + kept + max((cost.passing for cost in costs), default=0) + 8 * unit * max(ends)
    if needed > limit.memory:
        raise TooLargeError(
            f"the network would need {needed / (1 << 30):,.1f} GiB of memory for {images}, and the limit is"
            f" {limit.memory / (1 << 30):,.1f} GiB; to allow more, use limit=rvsm.runtime.Limit(memory=…), in bytes"
        )
    return kept


def seconds(plan: Plan, costs: Sequence[Cost], *, unit: int, activations: int) -> float:
    """Return the estimated seconds of the first chunk, including the copies of inputs and outputs."""
    ends = (*plan.inputs, *(plan.shapes[output.value] for output in plan.outputs))
    return 2 * NANOSECOND * unit * sum(map(prod, ends)) + PAGE * activations + sum(cost.seconds for cost in costs)
