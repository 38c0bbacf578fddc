"""Curves through measured points."""

import numpy as np
import pytest

from rvsm.timing.curves import Curve, nondecreasing


def test_a_pooled_sequence_is_the_closest_one_that_does_not_decrease() -> None:
    values, weights = np.array([3.0, 1.0, 2.0, 5.0, 4.0]), np.array([1, 2, 1, 1, 3])
    found = nondecreasing(values, weights)
    assert (np.diff(found) >= 0).all()
    assert found.tolist() == pytest.approx([5 / 3, 5 / 3, 2.0, 17 / 4, 17 / 4])
    distance = (weights * (found - values) ** 2).sum()
    generator = np.random.default_rng(0)
    for _ in range(2000):
        other = np.sort(found + generator.normal(0, 0.2, 5))
        assert (weights * (other - values) ** 2).sum() >= distance


def test_noise_and_repeated_points_leave_a_curve_with_an_inverse() -> None:
    curve = Curve.through([0.0, 0.1, 0.1, 0.5, 1.0], [-0.1, 2.0, 4.0, 3.0, 2.9])
    assert curve.x == (0.0, 0.1, 0.5, 1.0)
    assert curve.y[0] == 0.0
    assert (np.diff(curve.y) > 0).all()
    assert curve.y[1:] == pytest.approx([2.97] * 3, rel=0.02)
    for y in np.linspace(curve.y[0], curve.y[-1], 7):
        assert curve(curve.inverse(y)) == pytest.approx(y)


def test_a_straightened_curve_goes_from_the_line_to_the_curve() -> None:
    curve = Curve((0.0, 3.0, 4.0), (1.0, 1.5, 5.0))
    assert curve.straightened(0.0).y == pytest.approx(curve.y)
    assert curve.straightened(1.0).y == pytest.approx((1.0, 4.0, 5.0))
    assert curve.straightened(0.25).y == pytest.approx((1.0, 2.125, 5.0))
    assert curve.steepest == pytest.approx(3.5)
