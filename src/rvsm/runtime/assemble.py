"""From a plan to a native program for one layout: buffers, steps, machine code, and the table that the player reads."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime import convolve, jit, layout, steps
from rvsm.runtime.choice import Chooser
from rvsm.runtime.costs import Limit, check, costs, work
from rvsm.runtime.forms import channels_last
from rvsm.runtime.kernels import frame, player
from rvsm.runtime.kernels.denormals import mode
from rvsm.runtime.layout import Arena, Buffer
from rvsm.runtime.operations import (
    AdaptivePooling,
    Concatenation,
    Convolution,
    Flattening,
    Operation,
    Pointwise,
    Pooling,
)
from rvsm.runtime.plan import Plan
from rvsm.runtime.steps import Step

MAX_KERNELS = 500  # each takes some milliseconds to compile, and a network has a few dozen
SLACK = 4096  # floats after the last buffer: vectors may be read, never written, beyond the end of a map


@dataclass(eq=False)
class Native:
    """A program for one layout: machine code and data, ready to play."""

    images: int
    arena_bytes: int
    table: NDArray[np.int64]
    steps: list[Step]
    choices: dict[int, str] = field(default_factory=dict)
    work: float = 0.0  # a rough guess of the seconds that one chunk takes
    memory: int = 0  # bytes that it keeps, with those of a call


def assemble(
    plan: Plan, *, images: bool, threads: int, chooser: Chooser, limit: Limit | None = None, taken: int = 0
) -> Native:
    """Return the program that works on vectors of images, or on one image at a time.

    What would exceed the ``limit``, of which ``taken`` bytes are gone, is refused before anything is built.
    """
    machine = jit.machine()
    unit = machine.lanes if images else 1
    found = costs(plan, unit, machine)
    check(plan, found, limit or Limit(), unit=unit, activations=0, taken=taken)
    assembler = _Assembler(plan, unit, machine, threads, chooser)
    size = -(-(assembler.arena.size + 4 * SLACK) // 4096) * 4096
    memory = check(plan, found, limit or Limit(), unit=unit, activations=size, taken=taken)
    made = assembler.run()
    addresses = jit.compile_kernels({step.kernel: step.write for step in made})
    table = np.zeros((len(made), frame.SLOTS), dtype=np.int64)
    for row, step in zip(table, made, strict=True):
        row[0], row[1] = addresses[step.kernel], step.meet
        for slot, value in step.arguments.items():
            address = value if isinstance(value, int) else value.ctypes.data
            row[frame.HEAD + step.slots.index(slot)] = address
    seconds = work(plan, found, unit=unit, activations=size)
    return Native(unit, size, table, made, assembler.choices, seconds, memory)


class _Assembler:
    """Places first, of all values and copies; then the steps, which are much larger and take much longer to make."""

    def __init__(self, plan: Plan, unit: int, machine: jit.Machine, threads: int, chooser: Chooser) -> None:
        self.plan = plan
        self.unit = unit
        self.machine = machine
        self.threads = threads
        self.chooser = chooser
        self.arena = Arena()
        self.choices: dict[int, str] = {}
        self.geometries = layout.geometries(plan, unit)
        self.buffers: dict[int, Buffer] = {}
        self.sites: dict[int, tuple[convolve.Site, convolve.Taps]] = {}
        self._place()

    def _place(self) -> None:
        """Find a place for each value, and for the copies that convolutions make of their input."""
        plan, uses = self.plan, layout.last_uses(self.plan)
        for value in range(len(plan.inputs)):
            self._allocate(value)
        for k, operation in enumerate(plan.operations):
            self._allocate(plan.value_of(k))
            if isinstance(operation, Convolution):
                x, *residual = (self.buffers[value] for value in operation.sources())
                y = self.buffers[plan.value_of(k)]
                site = convolve.Site(self.machine, operation, x, y, residual[0] if residual else None, self.threads)
                taps = convolve.taps(site, self.arena)
                self.sites[k] = site, taps
                if taps.lent is not None:
                    self.arena.give_back([taps.lent])
            done = {value for value in (*operation.sources(), plan.value_of(k)) if uses[value] == k}
            self.arena.give_back(self.buffers[value].place for value in done)

    def run(self) -> list[Step]:
        """Return the steps."""
        plan = self.plan
        result: list[Step] = []
        for value in range(len(plan.inputs)):
            last = channels_last(plan.forms[value])
            result.append(steps.border(self.machine, self.unit, value, self.buffers[value], last=last, entering=True))
        kernels: set[str] = set()
        for k, operation in enumerate(plan.operations):
            made = self._steps(k, operation)
            for step in made:
                step.operation = k
            made[-1].meet = True
            result += made
            kernels |= {step.kernel for step in made}
            if len(kernels) > MAX_KERNELS:
                raise layout.TooLargeError(f"the network needs more than {MAX_KERNELS} different kernels")
        for index, output in enumerate(plan.outputs):
            last, buffer = channels_last(output.form), self.buffers[output.value]
            result.append(steps.border(self.machine, self.unit, index, buffer, last=last, entering=False))
        result[-1].meet = True
        return result

    def _allocate(self, value: int) -> None:
        channels, height, width = self.plan.shapes[value]
        geometry = self.geometries[height, width]
        place = self.arena.lend((height, width), geometry.plane * channels)
        self.buffers[value] = Buffer(place, channels, geometry)

    def _steps(self, k: int, operation: Operation) -> list[Step]:
        y = self.buffers[self.plan.value_of(k)]
        sources = [self.buffers[value] for value in operation.sources()]
        match operation:
            case Convolution():
                return self._convolution(k)
            case Pooling() | AdaptivePooling():
                return [steps.pool(self.machine, operation, sources[0], y)]
            case Pointwise():
                b = sources[1] if len(sources) > 1 else None
                return [steps.pointwise(self.machine, operation, sources[0], b, y)]
            case Concatenation():
                return steps.concatenation(self.machine, sources, y)
            case Flattening():
                return [steps.flattening(self.machine, sources[0], y)]
        raise TypeError(f"no steps are known for a {operation.kind}")

    def _convolution(self, k: int) -> list[Step]:
        site, taps = self.sites[k]
        weights, bias = self.plan.weights[k].dense(), self.plan.biases[k]
        dense = self.chooser.dense(site, taps, weights, bias, arena_bytes=self.arena.size + 4 * SLACK)
        made = convolve.steps(site, taps, weights, bias, dense=dense)
        self.choices[k] = "dense" if dense else "sparse"
        return [*convolve.copies(site, taps, made), *made]


def aligned(size: int) -> NDArray[np.uint8]:
    """Return ``size`` zero bytes whose address is a multiple of 64."""
    memory = np.zeros(size + layout.ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % layout.ALIGNMENT
    return memory[start : start + size]


def play_function() -> Callable[[int, int, int, int], None]:
    """Return the compiled player."""
    address = jit.compile_kernels({"play": lambda: player.meet() + "\n\n" + player.play(mode())})["play"]
    arguments = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64]
    return ctypes.CFUNCTYPE(None, *arguments)(address)
