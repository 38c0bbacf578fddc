"""The choice of groups against a sort: ties, limits, unequal costs, misleading samples, any number of processes.

That real processes choose alike is checked in sharded/without_shards.py.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from threading import Barrier

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rvsm.splitting import magnitudes as reading
from rvsm.splitting import quantiles
from rvsm.splitting.magnitudes import Magnitudes, survey
from rvsm.splitting.ranks import ALONE, Ranks
from rvsm.splitting.selection import (
    Candidates,
    candidates,
    costs_of,
    counts_for,
    cutoffs,
    removals,
    smallest,
    together,
)

fixed = settings(derandomize=True, max_examples=60)

# A handful of values makes ties the rule; among them are zero, the smallest positive numbers, and two neighbours that
# differ in the last bit.
TYING = st.sampled_from([0.0, 0.25, 0.5, 0.5 + 2**-24, 1.0, 3.0, 2.0**-149, 2.0**-148])
ANY = st.floats(0, 100, width=32)
MAGNITUDES = st.lists(TYING, min_size=1, max_size=12) | st.lists(ANY, min_size=1, max_size=40)


READERS = ["whole", "sampled", "accelerator"]


@contextmanager
def read_by(reader: str) -> Iterator[None]:
    """Read small layers as a whole; by samples that are taken at their word; or with torch, as on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if reader == "sampled":
            patch.setattr(Magnitudes, "drawn", property(lambda self: -(-self.size // 4)))
            patch.setattr(quantiles, "_ERRORS", 0.0)
        if reader == "accelerator":
            patch.setattr(Magnitudes, "drawn", property(lambda self: -(-self.size // 2)))
            patch.setattr(reading, "_array", lambda part: part.detach().flatten())
        yield


def on_each_by_all_readers(size: int, work: Callable[[Ranks], object]) -> list:
    """Return what each thread returns, by each reader: an example that has been drawn serves all three."""
    results = []
    for reader in READERS:
        with read_by(reader):
            results.append(on_each(size, work))
    return results


@dataclass
class Drawn:
    """A layer: the magnitudes and costs of its groups, how many it keeps, and where processes divide it."""

    magnitudes: list[float]
    costs: list[float]
    kept: int
    scale: float
    cuts: list[int]  # where the parts of further processes begin; if there are none, each process has the whole layer

    @property
    def ranked(self) -> np.ndarray:
        return np.float32(self.magnitudes) / np.float32(self.scale)

    def on(self, ranks: Ranks) -> Magnitudes:
        ends = [0, *self.cuts, len(self.magnitudes)]
        part = slice(*ends[ranks.rank : ranks.rank + 2]) if self.cuts else slice(None)
        signed = (torch.tensor(self.magnitudes) * (-1.0) ** torch.arange(len(self.magnitudes)))[part]
        costs = np.array(self.costs[:1] if len(set(self.costs)) == 1 else self.costs[part])
        halves = [signed[: len(signed) // 2], signed[len(signed) // 2 :]]
        return Magnitudes(halves, self.scale, costs, ranks if self.cuts else ALONE)


@st.composite
def layers(draw: st.DrawFn, ranks: int = 1) -> Drawn:
    magnitudes = draw(MAGNITUDES)
    n = len(magnitudes)
    if draw(st.booleans()):
        costs = [float(draw(st.sampled_from([1, 2.5, 9, 64])))] * n
    else:
        costs = [float(c) for c in draw(st.lists(st.sampled_from([1, 2, 4, 7]), min_size=n, max_size=n))]
    cuts = sorted(draw(st.lists(st.integers(0, n), min_size=ranks - 1, max_size=ranks - 1)))
    divided = draw(st.booleans()) if ranks > 1 else False
    scale = draw(st.sampled_from([1.0, 1.0, 0.3, 7.0]))
    return Drawn(magnitudes, costs, draw(st.integers(1, n)), scale, cuts if divided else [])


class Sort:
    """The groups of a layer in order: what the selection has to find without sorting them."""

    def __init__(self, layer: Drawn) -> None:
        order = np.argsort(layer.ranked, kind="stable")
        self.magnitudes = layer.ranked[order]
        self.costs = np.concatenate([[0.0], np.cumsum(np.array(layer.costs)[order])])
        self.equal = len(set(layer.costs)) == 1
        self.limit = len(order) - layer.kept

    def count_for(self, cost: float) -> int:
        if self.equal:
            return min(max(round(cost / float(self.costs[1])), 0), len(self.magnitudes))
        return int(np.abs(self.costs - cost).argmin())

    def below(self, threshold: float, side: str) -> int:
        return min(int(self.magnitudes.searchsorted(np.float32(threshold), side)), self.limit)

    def cutoff(self, count: int, wanted: float | None) -> float:
        if count == 0:
            return 0.0
        last = float(self.magnitudes[count - 1])
        if count == len(self.magnitudes):
            return last
        following = float(self.magnitudes[count])
        most = following * (1 - 16 * float(np.finfo(np.float32).eps))
        return min((last + following) / 2 if wanted is None else max(wanted, last), most)


def sorted_together(pool: Sequence[Sort], target: float) -> tuple[list[int], float]:
    allowed = np.unique(np.concatenate([[0.0], *(layer.magnitudes for layer in pool)]))
    costs = [sum(layer.costs[layer.below(t, "right")] for layer in pool) for t in allowed]
    threshold = next((float(t) for t, cost in zip(allowed, costs, strict=True) if cost >= target), float(allowed[-1]))
    counts = [layer.below(threshold, "left") for layer in pool]
    missing = target - sum(layer.costs[count] for layer, count in zip(pool, counts, strict=True))
    for i, layer in enumerate(pool):
        taken = layer.costs[counts[i]]
        counts[i] = min(max(layer.count_for(taken + missing), counts[i]), layer.below(threshold, "right"))
        missing -= layer.costs[counts[i]] - taken
    return counts, threshold


class Threads(Ranks):
    """Processes that are threads: the same sums, without a network."""

    def __init__(self, size: int, rank: int, shared: list, barrier: Barrier) -> None:
        super().__init__(None)
        self.size, self.rank, self.shared, self.barrier = size, rank, shared, barrier

    def _all(self, tensor: Tensor) -> list[Tensor]:
        self._count(tensor)
        self.shared[self.rank] = tensor.clone()
        self.barrier.wait(20)
        found = list(self.shared)
        self.barrier.wait(20)
        return found

    def sum_(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(torch.stack(self._all(tensor)).sum(0))

    def max_(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(torch.stack(self._all(tensor)).amax(0))

    def before(self, tensor: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(tensor), *self._all(tensor)[: self.rank]]).sum(0)


def on_each(size: int, work: Callable[[Ranks], object]) -> list:
    """Return what each of some threads returns for the same work on its part of the layers."""
    if size == 1:
        return [work(ALONE)]
    shared, barrier = [None] * size, Barrier(size)

    def one(rank: int) -> object:
        try:
            return work(Threads(size, rank, shared, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def pool_of(drawn: Sequence[Drawn], ranks: Ranks = ALONE) -> list[Candidates]:
    return candidates(survey([layer.on(ranks) for layer in drawn]), [layer.kept for layer in drawn])


def pools(draw: st.DrawFn) -> tuple[int, list[Drawn]]:
    ranks = draw(st.sampled_from([1, 2, 3]))
    return ranks, draw(st.lists(layers(ranks), min_size=1, max_size=4))


POOLS = st.composite(pools)()


@fixed
@given(POOLS, st.data())
def test_costs_and_counts_are_those_of_the_sorted_groups(pool: tuple[int, list[Drawn]], data: st.DataObject) -> None:
    ranks, drawn = pool
    sorts = [Sort(layer) for layer in drawn]
    aims = [data.draw(st.integers(-1, 2 * int(layer.costs[-1]) + 1)) / 2 for layer in sorts]  # halves are ambiguous
    counts = [data.draw(st.integers(0, len(layer.magnitudes))) for layer in sorts]

    def work(rank: Ranks) -> object:
        populations = survey([layer.on(rank) for layer in drawn])
        return counts_for(populations, aims), costs_of(populations, counts), [p.total for p in populations]

    for results in on_each_by_all_readers(ranks, work):
        for found, costs, totals in results:
            assert found == [layer.count_for(aim) for layer, aim in zip(sorts, aims, strict=True)]
            assert costs == [layer.costs[count] for layer, count in zip(sorts, counts, strict=True)]
            assert totals == [layer.costs[-1] for layer in sorts]


@settings(fixed, max_examples=120)
@given(POOLS, st.floats(0, 1), st.data())
def test_a_common_threshold_is_that_of_the_sorted_groups(
    pool: tuple[int, list[Drawn]], share: float, data: st.DataObject
) -> None:
    ranks, drawn = pool
    sorts = [Sort(layer) for layer in drawn]
    target = share * sum(float(layer.costs[layer.limit]) for layer in sorts)
    counts, threshold = sorted_together(sorts, target)
    own = [data.draw(st.none() | st.integers(0, len(layer.magnitudes))) for layer in drawn]  # without the common one

    def work(rank: Ranks) -> object:
        found = pool_of(drawn, rank)
        taken, at = together(found, target)
        some = [count if given is None else given for count, given in zip(taken, own, strict=True)]
        common = [there if given is None else None for there, given in zip(at, own, strict=True)]
        return taken, at[0].point, cutoffs(found, some, common)

    for results in on_each_by_all_readers(ranks, work):
        for taken, point, thresholds in results:
            assert taken == counts
            assert point == threshold
            assert thresholds == [
                layer.cutoff(count, threshold) if given is None else layer.cutoff(given, None)
                for layer, count, given in zip(sorts, counts, own, strict=True)
            ]


@fixed
@given(POOLS, st.data())
def test_exactly_the_first_groups_of_a_stable_sort_go(pool: tuple[int, list[Drawn]], data: st.DataObject) -> None:
    ranks, drawn = pool
    counts = [data.draw(st.integers(0, len(layer.magnitudes))) for layer in drawn]
    expected = []
    for layer, count in zip(drawn, counts, strict=True):
        mask = np.zeros(len(layer.magnitudes), bool)
        mask[np.argsort(layer.ranked, kind="stable")[:count]] = True
        expected.append(mask.tolist())

    def work(rank: Ranks) -> object:
        here = [layer.on(rank) for layer in drawn]
        masks = []
        for part, removal in zip(here, removals(survey(here), counts), strict=True):
            ranked = torch.from_numpy(torch.cat(list(part.parts)).abs().numpy() / np.float32(part.scale))
            masks.append(removal.mask(ranked).tolist())
        return masks

    for found in on_each_by_all_readers(ranks, work):
        for i, layer in enumerate(drawn):
            of_all = [masks[i] for masks in found]
            assert ([*chain(*of_all)] if layer.cuts else of_all[0]) == expected[i]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["normal", "zeros", "equal", "quantised", "tiny", "narrow", "waves"])
def test_many_magnitudes_of_every_kind_and_type(kind: str, dtype: torch.dtype) -> None:
    n = 200_000
    w = torch.randn(n, dtype=torch.float64)
    w = {
        "normal": w,
        "zeros": w * (torch.rand(n) < 0.1),
        "equal": torch.full_like(w, 0.1),
        "quantised": (4 * w).round() / 4,
        "tiny": w * 1e-41,
        "narrow": 1 + w * 1e-4,
        "waves": torch.sin(torch.arange(n) * 2 * torch.pi / 128),
    }[kind].to(dtype)
    ordered = w.abs().sort(stable=True)
    for count in (0, 1, n // 3, n * 9 // 10, n - 1, n):
        mask = smallest(w.abs(), count)
        assert int(mask.sum()) == count
        assert mask[ordered.indices[:count]].all()


def test_the_shape_of_a_transposed_tensor_stays() -> None:
    magnitudes = torch.tensor([[3.0, 1.0], [1.0, 0.0], [2.0, 1.0]]).T
    assert smallest(magnitudes, 3).tolist() == [[False, True, False], [True, True, False]]
    assert smallest(magnitudes, 4).tolist() == [[False, True, False], [True, True, True]]


def equal(*magnitudes: list[float], kept: int = 1) -> list[Candidates]:
    found = survey([Magnitudes([torch.tensor(each)], costs=np.ones(1)) for each in magnitudes])
    return candidates(found, [kept] * len(found))


def test_ties_are_taken_in_the_order_of_the_layers() -> None:
    pool = equal([1.0] * 10, [1.0] * 10)
    assert together(pool, 12)[0] == [9, 3]
    assert together(pool, 0)[0] == [0, 0]
    assert together(pool, 1000)[0] == [9, 9]


def test_more_zeros_than_the_target_are_no_obstacle() -> None:
    assert together(equal([0.0] * 8 + [1.0, 2.0], [0.0, 3.0]), 5)[0] == [5, 0]


def test_one_common_threshold_serves_all_layers_that_it_fits() -> None:
    pool = equal([1.0, 2, 5], [3.0, 4, 6], kept=0)
    counts, at = together(pool, 3)
    assert counts == [2, 1]
    assert cutoffs(pool, counts, at) == [3.0, 3.0]


def test_a_group_just_above_the_threshold_is_kept_despite_rounding() -> None:
    n = 50_000  # so that only samples are compared, and the interval of the threshold is a point
    following = 1.0 + 2.0**-23
    pool = equal([1.0] * n + [following] + [2.0] * n, [1.0] * n + [2.0] * n)
    counts, at = together(pool, 1.5 * n)
    assert counts == [n, n // 2]
    assert cutoffs(pool, counts, at)[0] == following * (1 - 2.0**-19)


def test_layers_of_different_types_have_one_threshold() -> None:
    parts = [torch.tensor([0.1, 0.3]), torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)]
    pool = candidates(survey([Magnitudes([part], costs=np.ones(1)) for part in parts]), [0, 0])
    counts, at = together(pool, 2)  # 0.1 is a little larger in float32
    assert counts == [1, 1]
    assert at[0].point == float(np.float32(0.1))


def test_the_sample_is_even_but_in_step_with_no_period() -> None:
    w = torch.zeros(1 << 21).view(2048, 1024)
    w[:, ::128] = 1.0
    sample = Magnitudes([w]).sample()
    assert len(sample.magnitudes) == round(len(sample.magnitudes)) < 10_000
    assert (sample.magnitudes > 0).mean() == pytest.approx(1 / 128, rel=0.2)


def bytes_sent(layers: int, size: int) -> int:
    """Return how much each of two processes sends for the thresholds of layers with so many weights on each."""

    def work(rank: Ranks) -> int:
        generator = torch.Generator().manual_seed(rank.rank)
        parts = [torch.randn(size, generator=generator) for _ in range(layers)]
        found = survey([Magnitudes([part], costs=np.ones(1), ranks=rank) for part in parts])
        pool = candidates(found, [1] * layers)
        counts, at = together(pool, 0.9 * layers * 2 * size)
        cutoffs(pool, counts, at)
        return rank.sent

    [first, second] = on_each(2, work)
    assert first == second
    return first


@pytest.mark.parametrize("layers", [3, 50])
def test_messages_do_not_grow_with_the_number_of_weights(layers: int) -> None:
    assert bytes_sent(layers, 200_000) == pytest.approx(bytes_sent(layers, 20_000), rel=0.2)


@pytest.mark.parametrize("layers", [8, 64, 256, 1000])
def test_messages_stay_below_a_megabyte(layers: int) -> None:
    assert 0 < bytes_sent(layers, 20_000 if layers < 1000 else 17_000) < 1e6
