"""Which hypotheses are met, what is warned of, and what is refused."""

import math

import pytest
import torch

import rvsm
from rvsm.paper.theory import Setting, beta_bound, conditions, curvature, simulate
from rvsm.paper.theory.bounds import threshold_limit

GOOD = {"eta": 0.2, "beta": 0.03, "lam": 0.003, "k": 4, "d": 10, "delta": 1.0}


def test_parameters_inside_the_hypotheses() -> None:
    told = conditions(**GOOD)
    assert told.met_as_printed
    assert told.met_as_corrected
    assert told.warnings == ()
    assert "all hypotheses met" in str(told)


def test_each_hypothesis_is_seen() -> None:
    assert not conditions(**GOOD | {"eta": 0.3})["eta"].met_as_printed
    assert conditions(**GOOD | {"eta": 0.3})["eta"].met_as_corrected
    beyond = conditions(**GOOD | {"beta": 0.1})["beta"]
    assert (beyond.met_as_printed, beyond.met_as_corrected) == (False, False)
    assert not conditions(**GOOD | {"lam": 0.03})["lam/beta"].met_as_printed
    assert not conditions(**GOOD | {"lam": 0.03 / math.sqrt(10)})["lam/beta"].met_as_printed
    assert not conditions(**GOOD | {"k": 1})["2/k"].met_as_printed
    assert "NOT" in str(conditions(**GOOD | {"k": 1}))
    with pytest.raises(KeyError, match="no condition"):
        conditions(**GOOD)["gamma"]


def test_warnings() -> None:
    assert "u ends empty" in conditions(**GOOD | {"lam": 0.04}).warnings[0]
    assert "may end empty" in conditions(**GOOD, penalty="l0").warnings[0]
    assert "may end empty" in conditions(**GOOD, penalty=rvsm.L0(lam=7.0)).warnings[0]
    assert any("past u" in text for text in conditions(**GOOD | {"eta": 40.0}).warnings)
    assert any("printed order" in text for text in conditions(**GOOD | {"eta": 4.0}).warnings)
    assert any("bound on C" in text for text in conditions(**GOOD | {"lam": 0.04}).warnings)
    assert conditions(**GOOD | {"delta": 2.0}).warnings == ()


def test_a_start_may_be_long_if_the_threshold_is_small() -> None:
    assert "from every start" in conditions(**GOOD)["beta"].corrected
    assert "‖w⁰‖ ≤ 2‖w*‖" in conditions(**GOOD, penalty="l0")["beta"].corrected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.0}, "delta must be between 0 and π but is 0.0"),
        ({"delta": 3.2}, "delta must be between 0 and π"),
        ({"delta": math.nan}, "delta must be between 0 and π"),
        ({"k": 0}, "must be ≥ 1"),
        ({"d": 0}, "d must be an integer ≥ 1"),
        ({"d": 2.5}, "d must be an integer ≥ 1"),
        ({"eta": 0.0}, "eta must be > 0"),
        ({"beta": -1.0}, "beta must be > 0"),
        ({"lam": math.inf}, "lam must be > 0"),
        ({"penalty": "l3"}, "unknown penalty 'l3'"),
    ],
)
def test_bad_input(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conditions(**GOOD | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": "x"}, "delta must be a number between 0 and π but is 'x'"),
        ({"k": "4"}, "k must be a number of patches, such as 4, but is '4'"),
        ({"k": torch.tensor(4.0)}, "k must be one number of patches here but is tensor"),
        ({"eta": "1"}, "eta must be a number > 0 but is '1'"),
        ({"lam": None}, "lam must be a number > 0 but is None"),
    ],
)
def test_input_of_the_wrong_type(change: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        conditions(**GOOD | change)


def test_the_bound_on_beta_wants_numbers() -> None:
    with pytest.raises(ValueError, match="must be ≥ 1 but is 0"):
        beta_bound(k=0, delta=1.0)
    with pytest.raises(ValueError, match="delta must be between 0 and π but is 4"):
        beta_bound(k=2, delta=4)


def test_the_threshold_that_keeps_u_is_the_one_that_the_limit_has() -> None:
    """At a threshold just below the limit's entries u is not empty, just above it is."""
    k, beta, d = 4, 0.05, 9
    truth = torch.full((d,), 1 / 3, dtype=torch.float64)
    for share, empty in ((0.99, False), (1.01, True)):
        penalty = rvsm.L0(lam=1.0).with_threshold(share * float(threshold_limit(k=k, beta=beta, d=d)), 1 / beta)
        path = simulate(Setting(penalty, k=k, beta=beta, eta=1.5), truth, 0.3 * truth, steps=150, empty_ok=True)
        assert path.support[-1].any() != empty


def test_descent_alone_does_not_meet_the_corrected_theorem() -> None:
    """At η = 2/(β+L⁺) the Lagrangian does not rise, but w need not come to rest."""
    eta = 2 / (0.1 + float(curvature(2)))
    truth = torch.tensor([0.8, 0.6], dtype=torch.float64)
    setting = Setting(rvsm.L1(lam=0.2), k=2, beta=0.1, eta=eta)
    path = simulate(setting, truth, 1.3 * truth, steps=500, empty_ok=True)
    assert path.lagrangian.diff(dim=0).max() < 1e-12
    assert path.stationarity[-1] > 0.1
    assert not conditions(eta=eta, beta=0.1, lam=0.2, k=2, d=2, delta=1.0).met_as_corrected
