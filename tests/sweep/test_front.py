"""Fronts against their definition."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rvsm.sweep.front import front, knee

POINTS = st.integers(1, 3).flatmap(
    lambda goals: st.lists(st.tuples(*[st.integers(0, 5).map(float)] * goals), min_size=1, max_size=12)
)


@settings(max_examples=50)
@given(POINTS)
def test_a_point_is_on_the_front_unless_another_is_better(points: list[tuple[float, ...]]) -> None:
    found = front(points)
    for i, p in enumerate(points):
        beaten = any(q != p and all(b >= a for a, b in zip(p, q, strict=True)) for q in points)
        assert (i in found) == (not beaten)
    assert [points[i] for i in found] == sorted((points[i] for i in found), reverse=True)


@settings(max_examples=50)
@given(POINTS, st.floats(0.1, 10), st.floats(-5, 5))
def test_the_knee_does_not_depend_on_units(points: list[tuple[float, ...]], factor: float, shift: float) -> None:
    best = [points[i] for i in front(points)]
    chosen = best[knee(best)]
    assert chosen in best
    scaled = [tuple(factor * v + shift for v in p) for p in best]
    total = [sum(p) for p in (_scaled(best)[best.index(chosen)], _scaled(scaled)[knee(scaled)])]
    assert abs(total[0] - total[1]) < 1e-6


def _scaled(points: list[tuple[float, ...]]) -> list[list[float]]:
    ends = [(min(values), max(values)) for values in zip(*points, strict=True)]
    return [[(v - a) / (b - a) if b > a else 0.0 for v, (a, b) in zip(p, ends, strict=True)] for p in points]
