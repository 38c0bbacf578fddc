"""From a plan to the schedule of one layout: a place for each value, and the steps of each operation."""

from collections import Counter
from dataclasses import dataclass, replace

from rvsm.runtime.kernels.jit import Machine, machine
from rvsm.runtime.plan.axes import channels_last
from rvsm.runtime.plan.operation import Operation
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Plan
from rvsm.runtime.schedule import limits, recurrence, tensors, weightless
from rvsm.runtime.schedule.convolution import CONVOLUTION
from rvsm.runtime.schedule.layout import Arena, Buffer, TooLargeError, geometries, last_uses
from rvsm.runtime.schedule.limits import Limit
from rvsm.runtime.schedule.step import Cost, Extent, Packs, Rule, Site, Step

RULES: dict[type[Operation], Rule] = {Convolution: CONVOLUTION, **tensors.RULES, **recurrence.RULES}
"""How each operation is scheduled."""

MAX_KERNELS = 500  # each takes a few milliseconds to compile; a network usually has a few dozen
SLACK = 4096  # floats after the last buffer: vectors may be read, but not written, beyond the end of a map


@dataclass(frozen=True, eq=False)
class Schedule:
    """The steps of a network for one layout, with ``images`` images at each position."""

    images: int
    arena_bytes: int
    steps: list[Step]
    seconds: float  # a rough estimate for one chunk
    memory: int  # bytes that it keeps, including those of a call


def schedule(
    plan: Plan,
    *,
    images: bool,
    threads: int,
    choose: str | None = None,
    limit: Limit | None = None,
    taken: int = 0,
    packs: Packs | None = None,
) -> Schedule:
    """Return the schedule for vectors of images, or for one image at a time.

    ``choose`` forces the ``sparse`` or the ``dense`` kernel. A network that exceeds the ``limit``, of which ``taken``
    bytes are already used, is refused before anything is built. Schedules of the same weights for maps of other sizes
    can share ``packs``.
    """
    unit = machine().lanes if images else 1
    found, limit = costs(plan, unit, machine()), limit or Limit()
    limits.check(plan, found, limit, unit=unit, activations=0, taken=taken)
    sites, buffers, size = _places(plan, unit, threads)
    memory = limits.check(plan, found, limit, unit=unit, activations=size, taken=taken)
    steps = []
    for value, axes in enumerate(plan.axes):
        steps.append(weightless.border(machine(), unit, value, buffers[value], last=channels_last(axes), entering=True))
    kernels: set[str] = set()
    for k, site in enumerate(sites):
        made = RULES[type(site.operation)].steps(replace(site, choose=choose, arena_bytes=size, packs=packs))
        for step in made:
            step.operation = k
        if made:
            made[-1].meet = True
        steps += made
        kernels |= {step.variant.name for step in made}
        if len(kernels) > MAX_KERNELS:
            raise TooLargeError(f"the network needs more than {MAX_KERNELS} different kernels")
    for index, output in enumerate(plan.outputs):
        last = channels_last(output.axes)
        steps.append(weightless.border(machine(), unit, index, buffers[output.value], last=last, entering=False))
    steps[-1].meet = True
    return Schedule(unit, size, steps, limits.seconds(plan, found, unit=unit, activations=size), memory)


def costs(plan: Plan, unit: int, machine: Machine) -> list[Cost]:
    """Return the cost of each operation, with ``unit`` images at each position."""
    result = []
    for k, operation in enumerate(plan.operations):
        sources, shape = [plan.shapes[value] for value in operation.sources()], plan.shapes[plan.value_of(k)]
        nonzero = len(plan.weights[k].values) if k in plan.weights else 0
        result.append(RULES[type(operation)].cost(Extent(operation, sources, shape, nonzero, unit, machine)))
    return result


def _places(plan: Plan, unit: int, threads: int) -> tuple[list[Site[Operation]], dict[int, Buffer], int]:
    """Return a place for each value and for the scratch memory of each operation, and the size of the arena.

    This is done before the steps are made, which takes much more time and memory.
    """
    arena, layouts, uses = Arena(), geometries(plan, unit), last_uses(plan)
    buffers: dict[int, Buffer] = {}
    owner: dict[int, int] = {}  # the value whose memory a value is in: its own, or that of another
    living: Counter[int] = Counter()

    def allocate(value: int, sharing: tuple[int, int] | None = None) -> Buffer:
        channels, height, width = plan.shapes[value]
        geometry = layouts[height, width]
        if sharing is None:
            key = (height, width) if geometry.bordered else None  # what has no border may hold anything else
            buffers[value] = Buffer(arena.lend(key, geometry.plane * channels), channels, geometry)
            owner[value] = value
        else:
            source, shift = sharing
            buffers[value] = Buffer(buffers[source].place + shift, channels, geometry)
            owner[value] = owner[source]
        living[owner[value]] += 1
        return buffers[value]

    for value in range(len(plan.inputs)):
        allocate(value)
    sites = []
    for k, operation in enumerate(plan.operations):
        values, result, rule = operation.sources(), plan.value_of(k), RULES[type(operation)]
        sources = tuple(buffers[value] for value in values)
        shift = rule.shared(operation, sources[0], layouts[plan.shapes[result][1:]]) if values else None
        target = allocate(result, None if shift is None else (values[0], shift))
        weights, bias = plan.weights.get(k), plan.biases.get(k)
        site = Site(operation, sources, target, machine(), threads, weights, bias)
        wanted = rule.scratch(site)
        if wanted is not None:
            place = arena.lend(*wanted)
            site = replace(site, scratch=place)
            arena.give_back([place])
        sites.append(site)
        for value in {value for value in (*values, result) if uses[value] == k}:
            living[owner[value]] -= 1
            if not living[owner[value]]:
                arena.give_back([buffers[owner[value]].place])
    return sites, buffers, -(-(arena.size + 4 * SLACK) // 4096) * 4096
