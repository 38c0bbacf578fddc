"""Ours: the conditions of a critical point, and that a wrong method, penalty or bound changes a verdict."""

import dataclasses
from itertools import product

import pytest
import torch

import rvsm
from rvsm.paper.theory import Sweep, curvature, differences, run, sparse_gradient
from rvsm.paper.theory.methods import FallingRVSM
from rvsm.paper.theory.penalty_formulas import largest_off, residual
from rvsm.paper.theory.sparse_gradient import QUICK, Ends
from rvsm.splitting.layers import Layer

PENALTIES = [rvsm.L1(lam=0.2), rvsm.L0(lam=0.2), *(rvsm.TransformedL1(lam=0.2, a=a) for a in (0.3, 1.0, 3.0))]


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize("beta", [0.1, 0.5, 3.0])
def test_the_conditions_are_those_of_the_proximal_operator(penalty, beta: float) -> None:
    """At a limit w = u − ∇f(u)/β and u = prox(w): with ∇f(u) = −β(w − u) no w violates them, with another most do."""
    w = torch.linspace(-4, 4, 801, dtype=torch.float64).unsqueeze(-1)
    u = penalty.prox(w, 1 / beta)
    assert residual(penalty, u, -beta * (w - u), beta=beta).max() < 1e-9
    off = (u == 0).squeeze(-1)
    assert (residual(penalty, u, -beta * (w - u) + 0.01, beta=beta)[~off] > 0.005).all()
    assert largest_off(penalty, beta=beta) == pytest.approx(beta * penalty.threshold(1 / beta))
    slope = torch.full_like(u, 1.01 * largest_off(penalty, beta=beta))
    assert (residual(penalty, u, slope, beta=beta)[off] > 0).all()


def test_a_penalty_whose_conditions_are_not_known() -> None:
    one = torch.ones(1, 1)
    with pytest.raises(TypeError, match=r"known of L1, L0 and TransformedL1 but the penalty is MCP"):
        residual(rvsm.MCP(lam=0.3), one, one, beta=1.0)


def test_the_course_of_alpha() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    method = FallingRVSM([("w", parameter)], rvsm.L1(lam=0.1), beta=1.0, fall=4)
    found = []
    for method.step in range(6):
        found.append(method.alpha)
    assert found == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]


KEYS = ["u-limits", "u-descent", "u-rest", "u-beside-rvsm"]
l0_prox, runs = rvsm.L0.prox, sparse_gradient._ends


@pytest.fixture(scope="module")
def unmutated() -> dict[tuple, Ends]:
    """Return all runs of the quick study, by penalty, course of α, and whether β is strong."""
    each = product(("l1", "l0", "tl1"), ("w", "u", "moving"), (False, True))
    (d,) = QUICK.dimensions
    return {(name, at, strong): runs(name, d, at, strong, QUICK) for name, at, strong in each}


@pytest.fixture
def quick(unmutated: dict[tuple, Ends], monkeypatch: pytest.MonkeyPatch) -> Sweep:
    monkeypatch.setattr(sparse_gradient, "_ends", lambda name, d, at, strong, plan: unmutated[name, at, strong])
    return Sweep(quick=True)


def test_the_quick_study_gives_the_expected_verdicts(quick: Sweep) -> None:
    found = list(run(KEYS, sweep=quick))
    assert differences(found) == []
    assert all(verdict.ours and verdict.where.startswith("Ours: ") for verdict in found)


# The runs of one penalty are made again; the others are those without the mutant, which can only help to hide it.
MUTANTS = {
    "the gradient at w": (FallingRVSM, "alpha", property(lambda self: 1.0), "l1", ["u-limits", "u-descent", "u-rest"]),
    "the homotopy stops half-way": (FallingRVSM, "alpha", property(lambda self: 0.5), "l1", ["u-limits"]),
    "the homotopy runs backwards": (
        FallingRVSM,
        "alpha",
        property(lambda self: min(1.0, self.step / self.fall) if self.fall else 0.0),
        "l1",
        ["u-limits", "u-beside-rvsm"],
    ),
    "l1 with hard thresholding": (
        rvsm.L1,
        "prox",
        lambda self, w, step: rvsm.L0(lam=self.lam).with_threshold(self.threshold(step), step).prox(w, step),
        "l1",
        ["u-limits", "u-descent"],
    ),
    "an l0 that shrinks": (rvsm.L0, "prox", lambda self, w, step: 0.9 * l0_prox(self, w, step), "l0", ["u-limits"]),
    "a curvature too small": (sparse_gradient, "curvature", lambda k: 0.3 * curvature(k), "l1", ["u-descent"]),
    "a pull of half the strength": (Layer, "pull", lambda self, lr: lr * self.beta / 2, "l1", ["u-rest"]),
}


def is_seen(key: str, sweep: Sweep) -> bool:
    try:
        return bool(differences(run([key], sweep=sweep)))
    except RuntimeError as error:  # no run is left that the statement is about
        return "a check needs at least one case" in str(error)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_formula_is_caught(
    mutant: str, quick: Sweep, unmutated: dict[tuple, Ends], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, wrong, penalty, broken = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, wrong)
    monkeypatch.setattr(
        sparse_gradient,
        "_ends",
        lambda name, d, at, strong, plan: (
            runs(name, d, at, strong, plan) if name == penalty else unmutated[name, at, strong]
        ),
    )
    for key in broken:
        assert is_seen(key, quick), f"{key} does not see: {mutant}"


@pytest.mark.parametrize(
    "taken", [{"moving": "w"}, {"w": "moving", "moving": "w"}], ids=["RVSM for the homotopy", "the two exchanged"]
)
def test_runs_of_another_course_are_caught(
    taken: dict[str, str], quick: Sweep, unmutated: dict[tuple, Ends], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sparse_gradient, "_ends", lambda name, d, at, strong, plan: unmutated[name, taken.get(at, at), strong]
    )
    for key in ("u-limits", "u-beside-rvsm"):
        assert is_seen(key, quick), f"{key} does not see: {taken}"


def test_what_is_compared_has_the_same_settings_and_starts(quick: Sweep) -> None:
    sparse, dense = (sparse_gradient.ends(at, strong=False, quick=True) for at in ("u", "w"))
    for a, b in zip(sparse, dense, strict=True):
        assert (a.penalty, a.d, a.settings) == (b.penalty, b.d, b.settings)
        assert torch.equal(a.truth, b.truth)
        assert torch.equal(a.start, b.start)
        assert a.alive.any()
        assert {field.name for field in dataclasses.fields(a)} >= {"loss", "masked", "error", "critical"}
