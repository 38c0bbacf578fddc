"""The choice of groups against a sort of python lists, with ties, limits and unequal costs."""

from math import ceil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rvsm.splitting.selection import Candidates, smallest, together

fixed = settings(derandomize=True, deadline=None, max_examples=150)

# A handful of values makes ties the rule; zero is among them, and so are two neighbours that differ in the last bit.
TYING = st.sampled_from([0.0, 0.25, 0.5, 0.5 + 2**-24, 1.0, 3.0])
ANY = st.floats(0, 100, width=32)
MAGNITUDES = st.lists(TYING, min_size=1, max_size=12) | st.lists(ANY, min_size=1, max_size=12)


@st.composite
def layers(draw: st.DrawFn) -> tuple[list[float], list[float], float]:
    """Return the magnitudes and costs of the groups of a layer, and its floor."""
    magnitudes = draw(MAGNITUDES)
    n = len(magnitudes)
    if draw(st.booleans()):
        costs = [float(draw(st.sampled_from([1, 2.5, 9, 64])))] * n
    else:
        costs = [float(c) for c in draw(st.lists(st.sampled_from([1, 2, 4, 7]), min_size=n, max_size=n))]
    return magnitudes, costs, draw(st.sampled_from([0.0, 0.005, 0.25, 0.5]))


def candidates(magnitudes: list[float], costs: list[float], floor: float) -> Candidates:
    same = len(set(costs)) == 1
    cost = torch.tensor(costs[0] if same else costs, dtype=torch.float64)
    kept = max(1, ceil(floor * len(magnitudes)))
    return Candidates.of(torch.tensor(magnitudes, dtype=torch.float32), cost, kept)


def by_magnitude(magnitudes: list[float], costs: list[float]) -> list[tuple[float, float]]:
    """Return (magnitude, cost), smallest first, ties in the order of the layer."""
    return sorted(zip(magnitudes, costs, strict=True), key=lambda pair: pair[0])


@fixed
@given(layers())
def test_candidates_are_the_sorted_groups(layer: tuple[list[float], list[float], float]) -> None:
    magnitudes, costs, floor = layer
    c, ordered = candidates(*layer), by_magnitude(magnitudes, costs)
    assert c.magnitudes.tolist() == [m for m, _ in ordered]
    assert [c.cost_of(n) for n in range(len(ordered) + 1)] == [
        sum(cost for _, cost in ordered[:n]) for n in range(len(ordered) + 1)
    ]
    assert c.total == sum(costs)
    assert c.limit == len(magnitudes) - max(1, ceil(floor * len(magnitudes)))


@fixed
@given(layers(), st.floats(-10, 800))
def test_count_for_comes_closest(layer: tuple[list[float], list[float], float], cost: float) -> None:
    c = candidates(*layer)
    distances = [abs(c.cost_of(n) - cost) for n in range(len(layer[0]) + 1)]
    assert distances[c.count_for(cost)] == min(distances)


@fixed
@given(layers(), TYING | ANY)
def test_below_counts_up_to_the_limit(layer: tuple[list[float], list[float], float], threshold: float) -> None:
    c = candidates(*layer)
    assert c.below(threshold, inclusive=True) == min(sum(m <= threshold for m in layer[0]), c.limit)
    assert c.below(threshold, inclusive=False) == min(sum(m < threshold for m in layer[0]), c.limit)


@fixed
@given(layers(), st.data())
def test_a_cutoff_separates_the_groups_that_go_from_those_that_stay(
    layer: tuple[list[float], list[float], float], data: st.DataObject
) -> None:
    c, ordered = candidates(*layer), sorted(layer[0])
    count = data.draw(st.integers(0, len(ordered)))
    cutoff = c.cutoff(count)
    assert all(m > cutoff for m in ordered[count:] if m > 0)
    near = 1 - 64 * torch.finfo(torch.float32).eps
    if count and (count == len(ordered) or ordered[count - 1] < ordered[count] * near):
        assert all(m <= cutoff for m in ordered[:count])


@fixed
@given(MAGNITUDES, st.data())
def test_smallest_takes_exactly_the_first_of_a_stable_sort(magnitudes: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(magnitudes)))
    taken = sorted(range(len(magnitudes)), key=lambda i: magnitudes[i])[:count]
    expected = [i in taken for i in range(len(magnitudes))]
    assert smallest(torch.tensor(magnitudes), count).tolist() == expected


def test_smallest_keeps_the_shape_of_a_transposed_tensor() -> None:
    magnitudes = torch.tensor([[3.0, 1.0], [1.0, 0.0], [2.0, 1.0]]).T
    assert smallest(magnitudes, 3).tolist() == [[False, True, False], [True, True, False]]


@fixed
@given(st.lists(layers(), min_size=1, max_size=4), st.floats(0, 1))
def test_together_meets_the_target_to_half_a_group(
    drawn: list[tuple[list[float], list[float], float]], share: float
) -> None:
    pool = [candidates(*layer) for layer in drawn]
    target = share * sum(c.cost_of(c.limit) for c in pool)
    counts, _ = together(pool, target)
    assert all(0 <= count <= c.limit for count, c in zip(counts, pool, strict=True))
    achieved = sum(c.cost_of(count) for count, c in zip(counts, pool, strict=True))
    assert abs(achieved - target) <= max(max(costs) for _, costs, _ in drawn) / 2 + 1e-9

    # One threshold for all: what goes in one layer is not larger than what stays, and could go, in another.
    gone = [sorted(m)[: counts[i]] for i, (m, _, _) in enumerate(drawn)]
    could = [sorted(m)[counts[i] : pool[i].limit] for i, (m, _, _) in enumerate(drawn)]
    assert max((m for layer in gone for m in layer), default=0) <= min((m for rest in could for m in rest), default=1e9)


@fixed
@given(
    st.lists(ANY, min_size=2, max_size=30, unique=True),
    st.lists(st.sampled_from([1.0, 4.0, 64.0]), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.3]),
    st.floats(0, 1),
)
def test_together_is_the_nearest_part_of_one_sorted_list(
    magnitudes: list[float], costs: list[float], floor: float, share: float
) -> None:
    dealt = [magnitudes[i :: len(costs)] for i in range(len(costs))]
    layers = [(m, [cost] * len(m), floor) for m, cost in zip(dealt, costs, strict=True) if m]
    pool = [candidates(*layer) for layer in layers]
    target = share * sum(c.cost_of(c.limit) for c in pool)
    allowed = [(m, i) for i, (own, _, _) in enumerate(layers) for m in sorted(own)[: pool[i].limit]]
    parts = [[i for _, i in sorted(allowed)[:n]] for n in range(len(allowed) + 1)]
    distance = [abs(sum(costs[i] for i in part) - target) for part in parts]
    counts, _ = together(pool, target)
    best = [[part.count(i) for i in range(len(layers))] for part, d in zip(parts, distance, strict=True)]
    achieved = abs(sum(c.cost_of(count) for count, c in zip(counts, pool, strict=True)) - target)
    assert counts in best
    assert achieved == pytest.approx(min(distance), abs=1e-9)


def test_ties_are_taken_in_the_order_of_the_layers() -> None:
    pool = [candidates([1.0] * 10, [1.0] * 10, 0.0), candidates([1.0] * 10, [1.0] * 10, 0.0)]
    assert together(pool, 12)[0] == [9, 3]
    assert together(pool, 0)[0] == [0, 0]
    assert together(pool, 1000)[0] == [9, 9]


def test_more_zeros_than_the_target_are_no_obstacle() -> None:
    pool = [candidates([0.0] * 8 + [1.0, 2.0], [1.0] * 10, 0.0), candidates([0.0, 3.0], [1.0] * 2, 0.0)]
    assert together(pool, 5)[0] == [5, 0]


def test_groups_of_unequal_cost_are_sorted_together_with_their_cost() -> None:
    magnitudes = torch.tensor([[3.0, 1.0], [2.0, 0.5]])
    c = Candidates.of(magnitudes, torch.tensor([[4.0], [1.0]]), 0.0)
    assert c.magnitudes.tolist() == [0.5, 1.0, 2.0, 3.0]
    assert [c.cost_of(n) for n in range(5)] == [0.0, 1.0, 5.0, 6.0, 10.0]


def test_one_common_threshold_serves_all_layers_that_it_fits() -> None:
    first, second = (Candidates.of(torch.tensor(values), torch.tensor(1), 0.0) for values in ([1.0, 2, 5], [3.0, 4, 6]))
    counts, common = together([first, second], 3)
    assert counts == [2, 1]
    assert first.cutoff(2, common) == second.cutoff(1, common) == pytest.approx(3.0)
    capped = Candidates.of(torch.tensor([0.1, 0.2, 0.3]), torch.tensor(1), 0.5)
    assert 0.1 <= capped.cutoff(1, common) < 0.2
