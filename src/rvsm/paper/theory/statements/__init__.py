"""Every statement of the paper, and some of ours, as a function of a sweep that returns a verdict.

To add one, write the function in the file of its part, and add a line with its recorded verdict here.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from rvsm.paper.theory.statements import (
    admm,
    claims,
    cone,
    corollaries,
    descent,
    iterates,
    landscape,
    limit,
    preliminaries,
    sparse_gradient,
    theorem,
)
from rvsm.paper.theory.sweep import Sweep
from rvsm.paper.theory.verdict import Outcome, Verdict

Statement = Callable[[Sweep], Verdict]

PARTS: dict[str, dict[str, tuple[Statement, Outcome]]] = {
    "Preliminaries": {
        "lemma-1": (preliminaries.lemma_1, "holds"),
        "simploss": (preliminaries.simploss, "holds"),
        "thresholding": (preliminaries.thresholding, "holds"),
        "moreau": (preliminaries.moreau, "holds"),
    },
    "The landscape": {
        "differentiable": (landscape.differentiable, "holds"),
        "critical-points": (landscape.critical_points, "holds"),
        "critical-points-k1": (landscape.critical_points_of_one_patch, "holds"),
        "gradient": (landscape.gradient, "holds"),
        "lipschitz-iterates": (iterates.lipschitz_iterates, "holds"),
        "quadratic-bound": (iterates.quadratic_bound, "holds"),
        "triangle": (iterates.triangle, "holds"),
        "lipschitz-coplanar": (iterates.lipschitz_coplanar, "holds"),
        "lipschitz-everywhere": (iterates.lipschitz_everywhere, "holds"),
        "closed-strip": (iterates.closed_strip, "holds with correction"),
        "norm-grows-inside": (iterates.norm_inside, "fails"),
        "norm-falls-outside": (iterates.norm_outside, "holds"),
    },
    "Descent": {
        "descent": (descent.descent, "holds"),
        "descent-amount": (descent.descent_amount, "holds"),
        "descent-step": (descent.descent_step, "holds"),
        "descent-printed-l1": (descent.descent_printed_l1, "holds with correction"),
        "descent-printed-l0": (descent.descent_printed_l0, "fails"),
    },
    "Theorem 1": {
        "theorem-lagrangian": (theorem.lagrangian, "holds"),
        "monotone-angle": (theorem.monotone_angle, "fails"),
        "theorem-i": (theorem.stationarity, "holds"),
        "theorem-ii": (theorem.rate, "holds"),
        "theorem-iii-angle": (theorem.limit_angle, "holds"),
        "theorem-iii-angle-twice": (theorem.limit_angle_beyond, "holds"),
        "theorem-iii-error": (theorem.limit_error, "holds"),
    },
    "The proof of Theorem 1": {
        "cone": (cone.cone, "holds"),
        "thresholding-angle": (cone.thresholding_angle, "holds"),
        "norm-of-u": (cone.norm_of_u, "fails"),
        "beta-bound": (cone.beta_bound_sharp, "holds"),
        "equilibrium": (limit.equilibrium, "holds"),
        "not-all-small": (limit.not_all_small, "fails"),
        "c2-at-zero": (limit.no_attraction, "fails"),
        "parallel-limit": (limit.parallel_limit, "fails"),
        "sine-relation": (limit.sine_relation, "holds"),
        "sine-gives-angle": (limit.sine_gives_angle, "holds"),
        "limit-gradient": (limit.limit_gradient, "holds"),
        "error-sin-gamma": (limit.error_by_gamma, "fails"),
    },
    "Corollaries": {
        "corollary-1.1-identity": (corollaries.identity, "holds"),
        "corollary-1.1-cap": (corollaries.cap, "holds with correction"),
        "shrinkage": (corollaries.shrinkage, "holds"),
        "corollary-1.2": (corollaries.other_penalties, "holds with correction"),
        "corollary-1.2-printed": (corollaries.other_penalties_printed, "fails"),
    },
    "Claims in the text": {
        "high-probability": (claims.high_probability, "holds"),
        "global-limit": (claims.global_limit, "holds with correction"),
        "beta-essential": (claims.beta_essential, "holds with correction"),
        "beta-too-large": (claims.beta_too_large, "holds"),
        "admm-multiplier": (admm.multiplier, "holds"),
        "gap": (admm.gap, "holds"),
        "admm-performance": (admm.performance, "fails"),
        "loss-of-u": (admm.loss_of_u, "fails"),
        "penalty-order": (claims.penalty_order, "holds"),
        "only-the-threshold": (claims.only_the_threshold, "fails"),
    },
    "Ours: the gradient at u": {
        "u-limits": (sparse_gradient.limits, "holds"),
        "u-descent": (sparse_gradient.descent, "holds"),
        "u-rest": (sparse_gradient.rest, "holds"),
        "u-beside-rvsm": (sparse_gradient.beside_rvsm, "holds"),
    },
}
"""The parts of the page, in the order of the paper; the last part is not the paper's.

A statement has its function and its recorded verdict, which no function reads. The correction of a statement that does
not hold as printed must pass. A difference means that the core, the laboratory or the mathematics has changed.
"""

STATEMENTS = {key: statement for part in PARTS.values() for key, (statement, _) in part.items()}
"""All statements by key, in the order of the page."""

EXPECTED = {key: outcome for part in PARTS.values() for key, (_, outcome) in part.items()}
"""The recorded verdicts by key."""


def run(keys: Iterable[str] | None = None, *, quick: bool = False, sweep: Sweep | None = None) -> Iterator[Verdict]:
    """Yield the verdict on each statement, as it is found.

    Args:
        keys: the statements; all of them if None.
        quick: use a small sweep, for a fast run.
        sweep: runs that already exist, to be used instead of new ones.

    >>> [verdict.verdict for verdict in run(["gradient", "critical-points"], quick=True)]
    ['holds', 'holds']

    """
    chosen = list(STATEMENTS if keys is None else keys)
    if unknown := [key for key in chosen if key not in STATEMENTS]:
        raise ValueError(f"unknown statement {unknown[0]!r}; choose from {', '.join(STATEMENTS)}")
    shared = Sweep(quick=quick) if sweep is None else sweep
    for key in chosen:
        yield replace(STATEMENTS[key](shared), statement=key)


def differences(verdicts: Iterable[Verdict]) -> list[str]:
    """Return a sentence for each verdict that is not as expected; an empty list if all are.

    >>> differences(run(["gradient"], quick=True))
    []
    """
    found = []
    for verdict in verdicts:
        outcome = EXPECTED[verdict.statement]
        expected = outcome, None if outcome == "holds" else True
        if (verdict.verdict, verdict.correction_holds) != expected:
            found.append(
                f"{verdict.statement}: expected “{_described(*expected)}” but found"
                f" “{_described(verdict.verdict, verdict.correction_holds)}” (margin {verdict.margin:.2g})"
            )
    return found


def _described(outcome: Outcome, correction_holds: bool | None) -> str:
    if correction_holds is None:
        return outcome
    return f"{outcome}; its correction {'holds' if correction_holds else 'fails'}"
