"""The magnitudes of a layer's groups: read block by block, sampled, counted in intervals and over processes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isnan, sqrt
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rvsm.splitting.ranks import ALONE, Ranks

Floats = NDArray[np.floating[Any]]
Measure = Literal["number", "cost"]

_BLOCK = 1 << 17  # magnitudes that stay in the cache of a CPU while they are compared
_BLOCK_ELSEWHERE = 1 << 24  # enough for each operation to take longer than to start it
_WHOLE = 1 << 14  # layers up to this size are not sampled but taken as a whole


@dataclass(frozen=True)
class Tally:
    """Magnitudes in ascending order, and how many come before each: those of a sample, or of an interval.

    Attributes:
        magnitudes: the magnitudes.
        sums: how many come before each of them and before the end ("number"), and what these cost ("cost").

    """

    magnitudes: Floats
    sums: dict[Measure, Floats]

    def upto(self, points: Any, measure: Measure = "number") -> Any:
        """Return how many are at most as large as each point, or what they cost."""
        return self.sums[measure][self.magnitudes.searchsorted(points, side="right")]

    def below(self, points: Any, measure: Measure = "number") -> Any:
        """Return how many are smaller than each point, or what they cost."""
        return self.sums[measure][self.magnitudes.searchsorted(points, side="left")]

    def above(self, point: Any) -> float:
        """Return the next larger magnitude; infinity if there is none."""
        position = int(self.magnitudes.searchsorted(point, side="right"))
        return float(self.magnitudes[position]) if position < len(self.magnitudes) else inf


@dataclass(frozen=True)
class Magnitudes:
    """The magnitudes of the groups of one layer that this process holds: |part| / scale, part after part.

    They are computed whenever they are read, one block at a time, so that no copy of a layer is kept.

    Attributes:
        parts: tensors that contain them all; for single weights, views of the weights themselves.
        scale: the divisor.
        costs: the cost of each, in the order of the parts, or one for all; None if only their number matters.
        ranks: the processes among which the groups of the layer are divided.

    """

    parts: Sequence[Tensor]
    scale: float = 1.0
    costs: Floats | None = None
    ranks: Ranks = ALONE

    @cached_property
    def size(self) -> int:
        """How many there are on this process."""
        return sum(part.numel() for part in self.parts)

    @property
    def device(self) -> torch.device:
        """Where the weights are, and where messages about them have to be."""
        return self.parts[0].device

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The type in which they are compared; shorter types than float32 are converted to it, which is exact."""
        return np.dtype(np.float64 if self.parts[0].dtype == torch.float64 else np.float32)

    def largest(self) -> float:
        """Return the largest on this process; infinity if one is not a number, −1 if there are none."""
        largest = [float(block.max()) for block, _ in self._blocks() if len(block)]
        return inf if any(map(isnan, largest)) else max(largest, default=-1.0)

    @property
    def drawn(self) -> int:
        """The size of the sample: drawing it then takes about as long as sorting the interval that it gives."""
        return self.size if self.size <= _WHOLE else max(_WHOLE // 8, int(self.size ** (2 / 3)) // 2)

    def sample(self) -> Tally:
        """Return the tally of a sample, each member of which stands for as many as the others."""
        drawn, each = self.drawn, self.size / max(self.drawn, 1)
        positions = np.arange(drawn)
        if drawn < self.size:
            # One from each of equal stretches, at varying places of these: in step with no period of the weights.
            places = positions * (sqrt(5) - 1) / 2
            positions = ((positions + places - np.floor(places)) * each).astype(np.int64)
        found, costs = _ascending(self._at(positions), None if self.costs is None else self.costs[positions])
        return Tally(found, {measure: each * sums for measure, sums in _sums(len(found), costs).items()})

    def within(self, intervals: Floats) -> list[Tally]:
        """Return the tallies of closed intervals [first, last], in a single pass over all magnitudes."""
        counts = [_Interval(first, last, has_costs=self.costs is not None) for first, last in intervals]
        for block, costs in self._blocks():
            for count in counts:
                count.add(block, costs)
        return [count.tally(self.dtype) for count in counts]

    def costs_at(self, point: float) -> Floats:
        """Return the costs of those that are equal to a point, in their order."""
        return _joined([costs[_numpy(block == point)] for block, costs in self._blocks() if costs is not None])

    def _blocks(self) -> Iterator[tuple[Any, Floats | None]]:
        """Yield magnitudes, in memory that the next block reuses, and their costs."""
        length = _BLOCK if self.device.type == "cpu" else _BLOCK_ELSEWHERE
        done, memory = 0, np.empty(min(self.size, _BLOCK), self.dtype)
        for part in map(_array, self.parts):
            for begin in range(0, len(part), length):
                block = self._measured(part[begin : begin + length], memory)
                yield block, None if self.costs is None else self.costs[done : done + len(block)]
                done += len(block)

    def _at(self, positions: NDArray[np.int64]) -> Floats:
        """Return the magnitudes at positions that ascend, without reading the others."""
        parts = [_array(part) for part in self.parts]
        ends = np.cumsum([len(part) for part in parts])
        within = np.split(positions, positions.searchsorted(ends[:-1]))
        found = [part[here - (end - len(part))] for part, end, here in zip(parts, ends, within, strict=True)]
        return _joined([_numpy(self._measured(part)) for part in found], self.dtype)

    def _measured(self, part: Any, memory: Floats | None = None) -> Any:
        if isinstance(part, np.ndarray):
            part = np.abs(part, out=None if memory is None else memory[: len(part)])
        else:
            part = part.abs()
        if self.scale != 1:
            part /= self.scale
        return part


class _Interval:
    """The magnitudes of a closed interval, collected block by block."""

    def __init__(self, first: Any, last: Any, *, has_costs: bool) -> None:
        self.first, self.last = first, last
        self.below, self.lowest = np.zeros(
            (2, 2)
        )  # the number, and the cost, of those below, and of those at its start
        self.inside: list[Floats] = []
        self.costs: list[Floats] | None = [] if has_costs else None

    def add(self, block: Any, costs: Floats | None) -> None:
        near = (block >= self.first) & (block <= self.last)
        found, theirs = _numpy(block[near]), None if costs is None else costs[_numpy(near)]
        # Very many may be equal to the first, above all if it is zero. These are counted; the others are kept.
        more = found > self.first
        self.inside.append(found[more])
        self.below += _weight(block < self.first, costs)
        self.lowest += _weight(~more, theirs)
        if self.costs is not None and theirs is not None:
            self.costs.append(theirs[more])

    def tally(self, dtype: Any) -> Tally:
        found, costs = _ascending(_joined(self.inside, dtype), None if self.costs is None else _joined(self.costs))
        sums = _sums(len(found), costs)
        for i, measure in enumerate(sums):
            sums[measure] = self.below[i] + np.concatenate([[0.0], self.lowest[i] + sums[measure]])
        return Tally(np.concatenate([np.array([self.first]), found]), sums)


@dataclass(frozen=True)
class Population:
    """The magnitudes of a layer, with what all its processes know of them.

    Attributes:
        here: those that this process holds; their costs are None if all cost the same.
        size: how many there are on all processes.
        largest: the largest of them; infinity if one is not a number.
        cost: what each of them costs; the highest if they differ.
        total: what all of them cost.
        drawn: how many are in the samples.
        spread: n²/m for samples of m out of n, minus n; the variance of the number that they put below a quantile q is
            q(1 − q) times as large.

    """

    here: Magnitudes
    size: int
    largest: float
    cost: float
    total: float
    drawn: int
    spread: float

    @property
    def costs_are_equal(self) -> bool:
        """Whether all of them cost the same."""
        return self.here.costs is None

    @property
    def is_sampled_whole(self) -> bool:
        """Whether the samples contain all of them."""
        return self.drawn == self.size

    @cached_property
    def sample(self) -> Tally:
        """A sample of those that this process holds."""
        return self.here.sample()


def survey(layers: Sequence[Magnitudes]) -> list[Population]:
    """Count the magnitudes of each layer over its processes."""
    sums, extremes = [], []
    for here in layers:
        n, drawn = here.size, here.drawn
        costs = (np.ones(1) if here.costs is None else here.costs)[:n]
        sums.append([n, costs.sum() * (n / max(len(costs), 1)), drawn, n * (n - drawn) / max(drawn, 1)])
        extremes.append([here.largest(), costs.max(initial=-inf), -costs.min(initial=inf)])
    populations = []
    exchange = Exchange(layers)
    summed, found = exchange.sums(np.array(sums, np.float64)), exchange.maxima(np.array(extremes))
    for here, (n, total, drawn, spread), (largest, dearest, cheapest) in zip(layers, summed, found, strict=True):
        equal = dearest == -cheapest
        populations.append(
            Population(
                replace(here, costs=None if equal or here.costs is None else np.broadcast_to(here.costs, here.size)),
                size=int(n),
                largest=float(largest),
                cost=float(dearest),
                total=float(dearest * n if equal else total),
                drawn=int(drawn),
                spread=float(spread),
            )
        )
    return populations


class Exchange:
    """Messages between the processes among which layers are divided: one for all layers that are divided alike.

    Each method takes a row for each layer and returns them combined, in the same memory. The rows of layers that are
    not divided are not sent.
    """

    def __init__(self, layers: Sequence[Magnitudes]) -> None:
        self._alike: dict[Ranks, list[int]] = {}
        self._device = {layer.ranks: layer.device for layer in layers}
        for i, layer in enumerate(layers):
            if layer.ranks.size > 1:
                self._alike.setdefault(layer.ranks, []).append(i)

    @property
    def rows(self) -> int:
        """How many rows are sent."""
        return sum(len(theirs) for theirs in self._alike.values())

    def sums(self, rows: Floats) -> Floats:
        """Return the sums over all processes."""
        return self._combined(rows, rows, lambda ranks, message: ranks.sum_(message))

    def maxima(self, rows: Floats) -> Floats:
        """Return the maxima over all processes."""
        return self._combined(rows, rows, lambda ranks, message: ranks.max_(message))

    def before(self, rows: Floats) -> Floats:
        """Return the sums over the processes before this one."""
        return self._combined(rows, np.zeros_like(rows), lambda ranks, message: ranks.before(message))

    def _combined(self, rows: Floats, into: Floats, operation: Callable[[Ranks, Tensor], Tensor]) -> Floats:
        for ranks, theirs in self._alike.items():
            message = torch.from_numpy(rows[theirs]).to(self._device[ranks])
            into[theirs] = operation(ranks, message).cpu().numpy()
        return into


def _ascending(magnitudes: Floats, costs: Floats | None) -> tuple[Floats, Floats | None]:
    if costs is None:
        return np.sort(magnitudes), None
    order = np.argsort(magnitudes, kind="stable")
    return magnitudes[order], costs[order]


def _sums(number: int, costs: Floats | None) -> dict[Measure, Floats]:
    """Return what comes before each of some magnitudes, and before the end."""
    numbers: Floats = np.arange(number + 1.0)
    return (
        {"number": numbers} if costs is None else {"number": numbers, "cost": np.concatenate([[0.0], np.cumsum(costs)])}
    )


def _weight(those: Any, costs: Floats | None) -> tuple[int, float]:
    """Return the number and the cost of those for which a mask is true."""
    number = np.count_nonzero(those) if isinstance(those, np.ndarray) else those.count_nonzero()
    return int(number), 0.0 if costs is None else float(costs[_numpy(those)].sum())


def _joined(arrays: Sequence[Floats], dtype: Any = np.float64) -> Floats:
    return np.concatenate([np.empty(0, dtype), *arrays])


def _array(part: Tensor) -> Any:
    """Return numbers in one dimension: on a CPU as a NumPy array, whose comparisons are faster than torch's."""
    flat = part.detach().flatten()
    flat = flat.float() if flat.dtype.itemsize < 4 else flat
    return flat.numpy() if flat.device.type == "cpu" else flat


def _numpy(array: Any) -> NDArray[Any]:
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()
