"""Measure a profile: the network in the runtime with more and more zeros, layer by layer and as a whole.

The time of a layer is not a straight line. The runtime chooses a sparse or a dense kernel, cuts the work into passes,
copies inputs and leaves out dead channels; so it is measured, with random zeros, at several densities. This is done in
two parts.

The curves of the layers are measured in networks with the same density in each layer, operation by operation, for one
vector of examples, or a single one, on one thread; and the operations' times are scaled so that they add up to a call
of that network with the batch and the threads that matter. The curves give the prices of weights, by which a budget
divides zeros among layers.

A budget leads to other networks, with different densities. Their calls take more or less time than the sum of the
curves: the weights of a network that is sparse everywhere stay in the cache from call to call, for example. So networks
on the way of a budget to a high speed are measured as well, and the profile says how long a call takes for a given sum.

An operation without zeros of its own, such as a pooling, counts with the next layer that may have some: it computes
only the channels that the layer reads.
"""

import copy
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Protocol

import torch
from torch import Tensor, nn

from rvsm.example_inputs import example_tuple, trial_inputs
from rvsm.lowering.variants import Variants
from rvsm.runtime.execute.program import Program
from rvsm.runtime.kernels.jit import machine
from rvsm.timing.curves import Curve
from rvsm.timing.profile import LayerTimes, Profile

DENSITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6)  # of the networks with the same density in each layer, besides 1
SPEEDS = (1.2, 1.5, 2.0, 2.7, 3.6, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0)  # of the networks on the way, roughly
STEP = 1.08  # how much the ratio of a call to its parts may differ from network to network on the way;
REFINEMENTS = 2  # otherwise more are measured between the two, at most as often as this
ROUNDS = 5  # of all networks, so that slow moments of the machine affect all of them, and none decides a median
BLOCK = 0.02  # seconds of calls in a row, but at least
CALLS = 2  # calls, of which the first does not count
SINGLE = 1  # the batch size at which the runtime computes over positions instead of examples
REST = ""  # the name under which what comes after the last layer is counted
STANDS_FOR = 0.01  # the value of a weight that is zero in the given network but not in a measurement


class Zeros(Protocol):
    """Chooses random zeros: which weights of each parameter they are."""

    def uniform(self, density: float) -> Mapping[str, Tensor]:
        """Return those of a network with the same density in each layer."""

    def on_the_way(self, profile: Profile, speed: float) -> Mapping[str, Tensor] | None:
        """Return those that a budget chooses for a speed, as a profile predicts; None if that is too fast."""


@dataclass(eq=False)
class _Trial:
    """The network at one density: the density of each layer, the least seconds of each layer, and those of calls."""

    program: Program
    densities: Mapping[str, float]
    layers: dict[str, float] = field(default_factory=dict)
    calls: list[float] = field(default_factory=list)  # the median of each round

    @property
    def call(self) -> float:
        """The median seconds of a call, as ``rvsm bench`` has them: on a busy machine the minimum is much less."""
        return median(self.calls)


def measure(
    model: nn.Module,
    example_input: Tensor | Sequence[Tensor],
    zeros: Zeros,
    groups: Mapping[str, str],
    *,
    batch: int,
    threads: int | None = None,
) -> Profile:
    """Return the profile of a network; a network that would need PyTorch is a ValueError that says for what.

    Args:
        model: the network; a copy of it is measured, in eval mode, on the CPU and in float32.
        example_input: a batch of its inputs, for their shapes.
        zeros: what makes random zeros.
        groups: which weights are zero together, in words, for each layer to be measured.
        batch: the number of examples in a call.
        threads: the number of threads of a call; as in `rvsm.compile` by default.

    """
    examples = example_tuple(example_input)
    network = copy.deepcopy(model).to("cpu", torch.float32).eval()
    parameters = dict(network.named_parameters(remove_duplicate=False))
    variants = Variants(network, examples)
    if missing := [name for name in groups if parameters[name].ndim > 1 and name not in variants.weights]:
        raise ValueError(
            f"the runtime does not use {missing[0]!r} as the weights of one of its layers, so zeros in it have no time;"
            " exclude it"
        )
    measured = [name for name in groups if name in variants.weights]
    inputs = trial_inputs(examples, batch)

    def trial(masks: Mapping[str, Tensor]) -> _Trial:
        weights = {name: _filled(parameters[name]) for name in groups}
        weights |= {name: weights[name].masked_fill(mask, 0.0) for name, mask in masks.items()}
        program = Program(variants.plan(weights), threads=threads).prepare(batches=batch > SINGLE)
        return _Trial(program, {n: float(weights[n].count_nonzero()) / weights[n].numel() for n in measured})

    trials = [*(trial(zeros.uniform(density)) for density in DENSITIES), trial({})]
    for each in _rounds(trials):
        _time(each, inputs, measured)
    profile = Profile(
        machine().name,
        batch,
        trials[0].program.threads,
        tuple(tuple(x.shape[1:]) for x in examples),
        median(_scaled(each, REST) for each in trials),
        {name: LayerTimes(tuple(parameters[name].shape), groups[name], _curve(trials, name)) for name in measured},
    )
    way = {1.0: trial({})}
    wanted: Sequence[float] = SPEEDS
    for _ in range(1 + REFINEMENTS):
        masks = {speed: zeros.on_the_way(profile, speed) for speed in wanted}
        way |= {speed: trial(found) for speed, found in masks.items() if found is not None}
        for each in _rounds(list(way.values())):
            _time_calls(each, inputs)
        sums = {speed: profile.parts(each.densities) for speed, each in way.items()}
        wanted = _steps({speed: way[speed].call / sums[speed] for speed in sorted(way)})
    return replace(profile, calls=Curve.through([0.0, *sums.values()], [0.0, *(each.call for each in way.values())]))


def _steps(ratios: Mapping[float, float]) -> list[float]:
    """Return the speeds between those at which the ratio of a call to its parts differs much."""
    return [sqrt(a * b) for (a, x), (b, y) in pairwise(ratios.items()) if not 1 / STEP < x / y < STEP]


def compared(
    model: nn.Module, example_input: Tensor | Sequence[Tensor], *, batch: int, threads: int | None = None
) -> tuple[float, float]:
    """Return the seconds of a call of a network in the runtime, without its zeros and with them, measured in turn."""
    examples = example_tuple(example_input)
    network = copy.deepcopy(model).to("cpu", torch.float32).eval()
    variants = Variants(network, examples)
    filled = {name: _filled(w) for name, w in network.named_parameters() if name in variants.weights}
    inputs = trial_inputs(examples, batch)
    trials = [_Trial(Program(variants.plan(w), threads=threads).prepare(), {}) for w in (filled, {})]
    for _ in range(ROUNDS):
        for trial in trials:
            _time_calls(trial, inputs)
    dense, sparse = (trial.call for trial in trials)
    return dense, sparse


def _filled(w: Tensor) -> Tensor:
    """Return weights none of which is zero: the given network may be sparse already."""
    w = w.detach()
    return w.where(w != 0, STANDS_FOR)


def _rounds(trials: Sequence[_Trial]) -> Iterator[_Trial]:
    """Yield all trials, again and again."""
    for _ in range(ROUNDS):
        yield from trials


def _time(trial: _Trial, inputs: tuple[Tensor, ...], measured: Collection[str]) -> None:
    """Time the operations and a call once more."""
    times: dict[str, float] = defaultdict(float)
    waiting = 0.0
    for row in trial.program.explain(SINGLE if len(inputs[0]) == SINGLE else None).rows:
        waiting += row.seconds
        if row.sparsity is not None and row.name in measured:
            times[row.name] += waiting
            waiting = 0.0
    times[REST] = waiting
    trial.layers = {name: min(taken, trial.layers.get(name, taken)) for name, taken in times.items()}
    _time_calls(trial, inputs)


def _time_calls(trial: _Trial, inputs: tuple[Tensor, ...]) -> None:
    """Time calls in a row, as ``rvsm bench`` does: the first ones wake helper threads and fill the caches."""
    begin = time.perf_counter()
    calls: list[float] = []
    while len(calls) < CALLS or time.perf_counter() < begin + BLOCK:
        start = time.perf_counter()
        trial.program(*inputs)
        calls.append(time.perf_counter() - start)
    trial.calls.append(median(calls[1:]))


def _scaled(trial: _Trial, name: str) -> float:
    """Return the seconds of a layer in a call."""
    return trial.layers.get(name, 0.0) * trial.call / sum(trial.layers.values())


def _curve(trials: Sequence[_Trial], name: str) -> Curve:
    """Return the curve of a layer, continued to a layer without weights."""
    points = sorted((trial.densities[name], _scaled(trial, name)) for trial in trials)
    (x0, y0), (x1, y1) = points[0], next((p for p in points if p[0] > points[0][0]), points[0])
    empty = max(y0 - x0 * (y1 - y0) / (x1 - x0), 0.0) if x1 > x0 else y0
    return Curve.through([0.0, *(x for x, _ in points)], [empty, *(y for _, y in points)])
