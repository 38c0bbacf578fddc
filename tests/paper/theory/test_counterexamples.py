"""Each counterexample of the theory, with the numbers that it must give."""

import pytest
import torch

from rvsm.paper.theory import beta_bound, curvature, gradient
from rvsm.paper.theory.counterexamples import (
    all_entries_below_threshold,
    beta_far_too_large,
    first_turn,
    large_start,
    rising_angle,
    short_step,
    two_cycle,
)


def test_1_the_printed_order_alternates_for_ever() -> None:
    path = two_cycle(steps=1000)
    setting = path.settings[0]
    assert setting.beta <= beta_bound(k=4, delta=1.0)
    assert setting.eta <= 1 / (setting.beta + float(curvature(4)))
    assert setting.mu < 2**-0.5
    assert float(path.theta[0]) <= torch.pi - 1
    expected = torch.tensor([[0.30862, 0.93636], [0.29766, 0.82906]], dtype=torch.float64)
    last = path.w[-2:, 0, 0]
    last = last if last[0, 1] > last[1, 1] else last.flip(0)
    torch.testing.assert_close(last, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(path.w[-1], path.w[-3], rtol=0, atol=1e-12)
    proof = two_cycle(order="proof", steps=1000).w[-1, 0, 0]
    torch.testing.assert_close(proof, torch.tensor([0.28816, 0.94425], dtype=torch.float64), rtol=0, atol=1e-5)


def test_1_no_quotient_of_the_cycle_is_above_the_l_that_its_step_allows() -> None:
    w = two_cycle().w[:, 0, 0]
    truth = torch.tensor([1.2, 1.2 - torch.pi / 2], dtype=torch.float64).cos()
    quotient = gradient(w, truth, k=4).diff(dim=0).norm(dim=-1) / w.diff(dim=0).norm(dim=-1)
    assert 1 / (0.066 + float(quotient.max())) >= 1.8


def test_a_short_step_in_the_printed_order_raises_the_lagrangian() -> None:
    path = short_step()
    setting = path.settings[0]
    assert setting.beta <= beta_bound(k=4, delta=2.0)
    assert setting.eta <= 1 / (setting.beta + 4)
    assert setting.mu < 2**-0.5
    assert float(path.theta[0]) <= torch.pi - 2
    assert float(path.lagrangian.diff(dim=0).max()) == pytest.approx(1.56e-4, abs=1e-6)


def test_2_the_angle_rises() -> None:
    theta = rising_angle().theta[:, 0, 0]
    assert float(theta[0]) < 1e-15
    assert float(theta[1]) == pytest.approx(0.00996, abs=1e-5)
    assert float(theta[-1]) == pytest.approx(0.01578, abs=1e-5)


@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("k", [2, 12])
def test_3_the_bound_on_beta_is_sharp_at_twice_its_value(d: int, k: int) -> None:
    assert first_turn(1.9, k=k, d=d) < 0 < first_turn(2.1, k=k, d=d)


@pytest.mark.parametrize("norm", [0.5, 2.0])
def test_3_twice_is_for_a_start_as_long_as_the_truth(norm: float) -> None:
    assert first_turn(1.9 / norm, norm=norm) < 0 < first_turn(2.1 / norm, norm=norm)


def test_4_beta_far_too_large() -> None:
    path, truth = beta_far_too_large(seeds=16)
    assert truth.shape == (16, 10)
    assert path.steps.diff().max() == 1
    assert path.stationarity[-1].max() < 1e-9
    stuck = path.theta[-1][path.stationarity[-1] < 1e-9]
    assert float(stuck.max()) > 1.9


def test_u_may_end_empty() -> None:
    path = all_entries_below_threshold()
    assert path.settings[0].mu < 2**-0.5
    assert not path.support[-1].any()
    assert float(path.stationarity[-1]) < 1e-12


def test_a_large_start_leaves_the_cone() -> None:
    path = large_start()
    assert float(path.norm[0]) > 2
    assert path.settings[0].threshold * 8 > 1
    assert float(path.theta.max()) > torch.pi - 1 + 1e-6
