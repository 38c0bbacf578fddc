import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.report.difference import CHANCE, UNKNOWN_SPREAD, Difference
from rvsm.report.numbers import Mean


def test_one_seed() -> None:
    far = Difference.of(Mean(0.9, None, 1), Mean(0.926, None, 1))
    near = Difference.of(Mean(0.906, None, 1), Mean(0.902, None, 1))
    assert str(far) == "−2.60 points"
    assert str(near) == "+0.40 points, not told apart by one seed"
    assert near.resolution == UNKNOWN_SPREAD
    assert CHANCE == "2 points"


def test_several_seeds() -> None:
    near, far = Mean(0.906, 0.003, 3), Mean(0.912, 0.003, 3)
    base = Mean(0.902, 0.004, 3)
    how = "(seeds spread by 0.50, told apart from 0.80 on)"  # 2.78 · 0.50 / √3
    assert str(Difference.of(near, base)) == f"+0.40 points {how}, not told apart"
    assert str(Difference.of(far, base)) == f"+1.00 points {how}"
    assert Difference.of(near, Mean(0.902, None, 1)).spread is None


@pytest.mark.parametrize(
    ("counts", "student"), [((2, 2), 4.30), ((2, 3), 3.18), ((4, 5), 2.45), ((5, 5), 2.31), ((400, 400), 2.00)]
)
def test_few_seeds_resolve_little(counts: tuple[int, int], student: float) -> None:
    found = Difference.of(Mean(0.9, 0.003, counts[0]), Mean(0.8, 0.004, counts[1]))
    error = (0.3**2 / counts[0] + 0.4**2 / counts[1]) ** 0.5
    assert found.resolution == pytest.approx(student * error)


def test_equal_means_without_a_spread_are_not_told_apart() -> None:
    assert not Difference.of(Mean(0.9, 0.0, 2), Mean(0.9, 0.0, 2)).told_apart


@given(st.floats(0, 1), st.floats(0, 1))
def test_it_changes_its_sign_with_the_order(one: float, other: float) -> None:
    there, back = (Difference.of(Mean(a, None, 1), Mean(b, None, 1)) for a, b in ((one, other), (other, one)))
    assert there.points == -back.points
    assert there.told_apart == back.told_apart
