"""Which hypotheses are met, what is warned of, and what is refused."""

import math

import pytest

import rvsm
from rvsm.theory import conditions

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
    assert any("cap on C" in text for text in conditions(**GOOD | {"delta": 2.0}).warnings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.0}, "delta must be between 0 and π but is 0.0"),
        ({"delta": 3.2}, "delta must be between 0 and π"),
        ({"delta": math.nan}, "delta must be between 0 and π"),
        ({"k": 0}, "must be ≥ 1"),
        ({"d": 0}, "d must be a whole number ≥ 1"),
        ({"d": 2.5}, "d must be a whole number ≥ 1"),
        ({"eta": 0.0}, "eta must be > 0"),
        ({"beta": -1.0}, "beta must be > 0"),
        ({"lam": math.inf}, "lam must be > 0"),
        ({"penalty": "l3"}, "unknown penalty 'l3'"),
    ],
)
def test_bad_input(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conditions(**GOOD | change)


def test_descent_alone_does_not_meet_the_corrected_theorem() -> None:
    """At η = 2/(β+L⁺) the Lagrangian does not rise, but w need not come to rest."""
    import torch

    from rvsm.theory import Setting, curvature, simulate

    eta = 2 / (0.1 + float(curvature(2)))
    truth = torch.tensor([0.8, 0.6], dtype=torch.float64)
    path = simulate(Setting(rvsm.L1(lam=0.2), k=2, beta=0.1, eta=eta), truth, 1.3 * truth, steps=500)
    assert path.lagrangian.diff(dim=0).max() < 1e-12
    assert path.stationarity[-1] > 0.1
    assert not conditions(eta=eta, beta=0.1, lam=0.2, k=2, d=2, delta=1.0).met_as_corrected
