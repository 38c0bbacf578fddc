"""Every statement gives the expected verdict, and a wrong formula changes the verdict of the statement it breaks."""

import json
import math
import sys

import pytest
import torch

import rvsm
import rvsm.paper.theory.sweep as sweeps
from rvsm.paper.theory import STATEMENTS, Sweep, Verdict, bounds, differences, network, problems, run
from rvsm.paper.theory.statements import claims, corollaries, iterates, limit, theorem
from rvsm.paper.theory.sweep import Plan
from rvsm.paper.theory.verdict import Check, check
from rvsm.splitting.layers import Layer

# The package has a function of the same name as the module.
simulation = sys.modules["rvsm.paper.theory.simulate"]


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return Sweep(quick=True)


# A mutant needs a sweep that can show it, not a large one.
TINY = Plan((2, 6), (4,), (0.3, 2.2), ((1.0, 0.9), (0.3, 0.2)), 6, 300)


@pytest.fixture(scope="module")
def unmutated() -> Sweep:
    """Return the tiny sweep; mutants are tried on copies, which share its runs."""
    sweep = Sweep(quick=True)
    sweep.plan = TINY
    return sweep


def mutated(unmutated: Sweep, fresh: str | None) -> Sweep:
    """Return the tiny sweep in which only the runs of one penalty, if any, are made again, now with a mutant.

    The others can only help to hide the mutant.
    """
    sweep = Sweep(quick=True)
    sweep.plan = TINY
    sweep.long_starts = unmutated.long_starts
    sweep.proof = tuple(
        sweeps._run(TINY, part.d, "proof", (fresh,), 1.0) if part.penalty[0] == fresh else part
        for part in unmutated.proof
    )
    return sweep


@pytest.mark.parametrize("key", STATEMENTS)
def test_the_verdict_is_as_expected(key: str, sweep: Sweep) -> None:
    (verdict,) = run([key], sweep=sweep)
    assert differences([verdict]) == []
    assert verdict.statement == key
    assert verdict.claim
    assert verdict.where
    assert verdict.evidence
    assert math.isfinite(verdict.margin)
    assert (verdict.margin >= 0) == (verdict.verdict == "holds")
    if verdict.verdict != "holds":
        assert verdict.counterexample
        assert verdict.correction
    assert json.loads(json.dumps(verdict.as_json(), allow_nan=False)) == verdict.as_json()


def without_sine(w, truth, *, k, at=None):
    at = network.geometry(w, truth, k) if at is None else at
    return (
        gradient(w, truth, k=k, at=at)
        + (at.truth_norm / at.norm * at.theta.sin() / (math.pi * at.k)).unsqueeze(-1) * w.double()
    )


def flat_far_away(w, truth, *, k, at=None):
    """∇f without its part across w beyond θ = 2.5: f would have critical points there if its slope along w is zero."""
    slope, theta = gradient(w, truth, k=k, at=at), network.angle(w, truth).unsqueeze(-1)
    e = network.unit(w.double())
    return torch.where(theta > 2.5, (slope * e).sum(-1, keepdim=True) * e, slope)


def with_another_zero(w, truth, *, k, at=None):
    """∇f with a dent along w near ‖w‖ = 5, so that its slope on the axis changes its sign twice more."""
    r = w.double().norm(dim=-1, keepdim=True)
    return gradient(w, truth, k=k, at=at) - 3 * torch.exp(-((r - 5) ** 2)) * w.double()


gradient, loss, eigenvalues = network.gradient, network.loss, network.hessian_eigenvalues
RVSM, cross_moment, l1_prox = rvsm.RVSM, network.cross_moment, rvsm.L1.prox
curvature, bound_on_beta, threshold_limit = network.curvature, bounds.beta_bound, bounds.threshold_limit
free_norm = corollaries._free_norm

MUTANTS = {
    "gradient without its sine": (network, "gradient", without_sine, "l1", ["gradient", "corollary-1.1-identity"]),
    "gradient scaled": (
        network,
        "gradient",
        lambda w, truth, **more: 1.01 * gradient(w, truth, **more),
        "l1",
        ["gradient", "corollary-1.1-identity", "differentiable"],
    ),
    "gradient without its part across w": (
        network,
        "gradient",
        flat_far_away,
        None,
        ["critical-points", "critical-points-k1"],
    ),
    "gradient with another zero on the axis": (
        network,
        "gradient",
        with_another_zero,
        None,
        ["critical-points", "critical-points-k1"],
    ),
    "loss that is smooth at 0": (
        network,
        "loss",
        lambda w, truth, *, k, at=None: (w.double() - truth.double()).square().sum(dim=-1) / 2,
        None,
        ["differentiable", "simploss"],
    ),
    "loss without its constant": (
        network,
        "loss",
        lambda w, truth, *, k, at=None: loss(w, truth, k=k, at=at) - 0.01,
        None,
        ["simploss"],
    ),
    "g with the angle's sign changed": (
        network,
        "cross_moment",
        lambda v, w: (
            v.norm(dim=-1)
            * w.norm(dim=-1)
            * (network.angle(v, w).sin() + (math.pi + network.angle(v, w)) * network.angle(v, w).cos())
            / (2 * math.pi)
        ),
        None,
        ["lemma-1"],
    ),
    "a curvature too small": (
        problems,
        "curvature",
        lambda k: 0.9 * network.coefficients(k)[0] / torch.as_tensor(k, dtype=torch.float64) ** 2,
        None,
        ["descent-step"],
    ),
    "a curvature too small in the sweep": (
        sweeps,
        "curvature",
        lambda k: 0.9 * curvature(k),
        "l1",
        ["quadratic-bound", "descent-amount"],
    ),
    "a floor of the norm that is too high": (
        sweeps,
        "norm_floor",
        lambda *, k, beta: torch.ones_like(beta),
        "l1",
        ["norm-grows-inside"],
    ),
    "the same for all limits and steps": (
        iterates,
        "norm_floor",
        lambda *, k, beta: torch.ones_like(beta),
        None,
        ["closed-strip", "lipschitz-iterates"],
    ),
    "a free norm that is too long": (
        corollaries,
        "_free_norm",
        lambda part: 1.3 * free_norm(part),
        None,
        ["corollary-1.1-cap"],
    ),
    "a bound on beta too large in the sweep": (
        sweeps,
        "beta_bound",
        lambda *, k, delta: 20 * bound_on_beta(k=k, delta=delta),
        "l1",
        ["cone", "limit-gradient", "monotone-angle"],
    ),
    "a threshold too large to keep u": (
        limit,
        "threshold_limit",
        lambda **at: 1.5 * threshold_limit(**at),
        None,
        ["not-all-small"],
    ),
    "the same for the other penalties": (
        limit,
        "threshold_limit",
        lambda **at: 2 * threshold_limit(**at),
        None,
        ["corollary-1.2"],
    ),
    "a cap of no size": (claims, "_cap", lambda d, delta: 0.0, None, ["high-probability"]),
    "an l1 that expands": (
        rvsm.L1,
        "prox",
        lambda self, w, step: 1.3 * l1_prox(self, w, step),
        "l1",
        ["shrinkage", "thresholding"],
    ),
    "l0's threshold without its 2": (
        rvsm.L0,
        "threshold",
        lambda self, step: math.sqrt(self.lam * step),
        "l0",
        ["thresholding", "theorem-i", "moreau"],
    ),
    "Tl1's threshold in one regime": (
        rvsm.TransformedL1,
        "threshold",
        lambda self, step: self.lam * step * (self.a + 1) / self.a,
        None,
        ["thresholding"],
    ),
    "l1 with hard thresholding": (
        rvsm.L1,
        "prox",
        lambda self, w, step: rvsm.L0(lam=self.lam).with_threshold(self.threshold(step), step).prox(w, step),
        "l1",
        ["thresholding", "moreau", "theorem-i"],
    ),
    "the printed order for the proof's": (
        simulation,
        "RVSM",
        lambda *args, order, **more: RVSM(*args, order="printed", **more),
        None,
        ["moreau", "corollary-1.2-printed"],
    ),
    "the proof's order for the printed": (
        simulation,
        "RVSM",
        lambda *args, order, **more: RVSM(*args, order="proof", **more),
        None,
        ["descent-printed-l0", "corollary-1.2-printed"],
    ),
    "a pull of half the strength": (
        Layer,
        "pull",
        lambda self, lr: lr * self.beta / 2,
        None,
        ["moreau", "beta-bound"],
    ),
    "a pull of three times the strength": (
        Layer,
        "pull",
        lambda self, lr: 3 * lr * self.beta,
        "l1",
        ["theorem-iii-error", "parallel-limit"],
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_formula_is_caught(mutant: str, unmutated: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, wrong, fresh, broken = MUTANTS[mutant]
    assert unmutated.proof
    assert unmutated.long_starts
    monkeypatch.setattr(owner, name, wrong)
    # These runs are evidence that no verdict uses; with a mutant they may never come to rest.
    monkeypatch.setattr(theorem, "error_exponents", lambda name, *, quick: torch.ones(1))
    sweep = mutated(unmutated, fresh)
    for key in broken:
        assert differences(run([key], sweep=sweep)), f"{key} does not see: {mutant}"


def test_without_a_mutant_the_tiny_sweep_gives_the_expected_verdicts(unmutated: Sweep) -> None:
    swept = ["corollary-1.1-identity", "theorem-i", "quadratic-bound", "descent-amount", "norm-grows-inside", "cone"]
    swept += ["limit-gradient", "monotone-angle", "not-all-small", "corollary-1.2", "shrinkage"]
    swept += ["closed-strip", "lipschitz-iterates", "corollary-1.1-cap", "theorem-iii-error", "parallel-limit"]
    assert differences(run(swept, sweep=unmutated)) == []


def test_twice_the_bound_on_beta_is_not_any_multiple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rvsm.paper.theory.statements.theorem.beta_bound", lambda *, k, delta: 25 * bound_on_beta(k=k, delta=delta)
    )
    assert differences(run(["theorem-iii-angle-twice"], quick=True))


def test_the_constant_of_the_triangle_is_sharp() -> None:
    (verdict,) = run(["triangle"], quick=True)
    assert 0 <= verdict.margin < 1e-3


def test_runs_that_statements_share_are_made_once() -> None:
    made = []

    def make(*arguments, **options):
        made.append((arguments, options))
        return len(made)

    sweep = Sweep(quick=True)
    assert [sweep.once(make, 1, b=2), sweep.once(make, 1, b=2), sweep.once(make, 1, b=3)] == [1, 1, 2]
    assert Sweep(quick=True).once(make, 1, b=2) == 3


def test_a_check_of_nothing_or_of_nan_does_not_pass() -> None:
    with pytest.raises(RuntimeError, match="a check needs at least one case"):
        check(torch.empty(0))
    assert not check(torch.tensor([1.0, math.nan])).passed
    assert check(torch.tensor([0.5, -1e-12]), tolerance=1e-9).passed
    assert Check(1.0, 2) & Check(-1.0, 3) == Check(-1.0, 5)


def test_how_checks_become_verdicts() -> None:
    good, bad = Check(0.1, 1), Check(-0.1, 1)
    told = {"where": "here", "claim": "this", "evidence": "that"}
    assert Verdict(printed=good, **told).verdict == "holds"
    assert Verdict(printed=bad, **told).verdict == "fails"
    assert Verdict(printed=bad, corrected=good, mends=True, **told).verdict == "holds with correction"
    assert Verdict(printed=bad, corrected=bad, mends=True, **told).verdict == "fails"
    assert Verdict(printed=good, **told).label == "claim"
    assert Verdict(printed=good, reading=True, **told).label == "read as"
    found = Verdict(printed=bad, corrected=good, **told)
    assert (found.verdict, found.correction_holds) == ("fails", True)


def test_an_unknown_statement() -> None:
    with pytest.raises(ValueError, match="unknown statement 'lemma-9'; choose from lemma-1"):
        list(run(["lemma-9"]))
