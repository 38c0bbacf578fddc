from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.report.statistics import Difference, Mean


def test_of_single_runs_nobody_knows_what_is_chance() -> None:
    apart = Difference.of(Mean(0.9, None, 1), Mean(0.5, None, 1))
    assert apart.resolution == inf
    assert str(apart) == "+40.00 points, not told apart by one seed"


def test_what_is_chance_may_be_known_from_elsewhere() -> None:
    far = Difference.of(Mean(0.9, None, 1), Mean(0.936, None, 1), unknown=3.2)
    near = Difference.of(Mean(0.906, None, 1), Mean(0.902, 0.001, 2), unknown=3.2)
    assert str(far) == "−3.60 points"
    assert str(near) == "+0.40 points, not told apart by one seed"
    assert (far.resolution, near.resolution) == (3.2, 3.2)


def test_a_single_run_is_taken_to_spread_as_the_others_do() -> None:
    apart = Difference.of(Mean(0.9, 0.003, 3), Mean(0.95, None, 1))
    assert apart.spread is None
    assert apart.resolution == pytest.approx(4.303 * 0.3 * (1 / 3 + 1) ** 0.5, rel=1e-3)
    assert apart.told_apart
    assert not Difference.of(Mean(0.9, 0.003, 3), Mean(0.91, None, 1)).told_apart


def test_several_seeds() -> None:
    near, far = Mean(0.906, 0.003, 3), Mean(0.912, 0.003, 3)
    base = Mean(0.902, 0.004, 3)
    how = "(seeds spread by 0.50, told apart from 0.83 on)"  # 2.87 · 0.50 / √3, with 3.7 degrees of freedom
    assert str(Difference.of(near, base)) == f"+0.40 points {how}, not told apart"
    assert str(Difference.of(far, base)) == f"+1.00 points {how}"
    assert Difference.of(near, Mean(0.902, None, 1)).spread is None


@pytest.mark.parametrize(
    ("spreads", "counts", "student"),
    [
        ((0.3, 0.3), (2, 2), 4.303),
        ((0.3, 0.3), (5, 5), 2.306),
        ((0.3, 0.3), (400, 400), 1.963),
        ((0.0, 0.3), (20, 2), 12.706),  # the two seeds alone say how much seeds spread
    ],
)
def test_few_seeds_resolve_little(spreads: tuple[float, float], counts: tuple[int, int], student: float) -> None:
    one, other = (Mean(0.9, spread / 100, count) for spread, count in zip(spreads, counts, strict=True))
    error = (spreads[0] ** 2 / counts[0] + spreads[1] ** 2 / counts[1]) ** 0.5
    assert Difference.of(one, other).resolution == pytest.approx(student * error, rel=1e-3)


@pytest.mark.parametrize(("counts", "most"), [((3, 3), 0.05), ((3, 10), 0.08), ((2, 10), 0.12), ((3, 1), 0.06)])
def test_chance_alone_is_seldom_told_apart(counts: tuple[int, int], most: float) -> None:
    draws = np.random.default_rng(0).normal(0.9, 0.01, (2000, sum(counts)))
    means = [(Mean.of(seeds[: counts[0]]), Mean.of(seeds[counts[0] :])) for seeds in draws.tolist()]
    found = [Difference.of(one, other).told_apart for one, other in means if one and other]
    assert len(found) == len(draws)
    assert sum(found) / len(found) < most


def test_seeds_without_any_spread_are_not_trusted() -> None:
    assert not Difference.of(Mean(0.9, 0.0, 2), Mean(0.9, 0.0, 2)).told_apart
    assert not Difference.of(Mean(0.94, 0.0, 2), Mean(0.9, 0.0, 2)).told_apart
    assert not Difference.of(Mean(0.94, 0.0, 2), Mean(0.9, None, 1)).told_apart
    assert Difference.of(Mean(0.94, 0.0, 2), Mean(0.9, 0.0, 2), unknown=3.2).told_apart


@given(st.floats(0, 1), st.floats(0, 1))
def test_it_changes_its_sign_with_the_order(one: float, other: float) -> None:
    there, back = (Difference.of(Mean(a, None, 1), Mean(b, None, 1)) for a, b in ((one, other), (other, one)))
    assert there.points == -back.points
    assert there.told_apart == back.told_apart
