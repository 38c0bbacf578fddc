"""Every statement of the paper, and some of ours, as a function of a sweep that returns a verdict, a file for a part.

To add one, write the function in the file of its part, add a line here, and its expectation to `expected.py`.
"""

from collections.abc import Callable, Iterable, Iterator

from rvsm.paper.theory.statements import (
    admm,
    claims,
    cone,
    corollaries,
    descent,
    landscape,
    limit,
    lipschitz,
    preliminaries,
    sparse_gradient,
    strip,
    theorem,
)
from rvsm.paper.theory.sweep import Sweep
from rvsm.paper.theory.verdict import Verdict

Statement = Callable[[Sweep], Verdict]

PARTS: dict[str, dict[str, Statement]] = {
    "Preliminaries": {
        "lemma-1": preliminaries.lemma_1,
        "simploss": preliminaries.simploss,
        "thresholding": preliminaries.thresholding,
        "moreau": preliminaries.moreau,
    },
    "The landscape": {
        "differentiable": landscape.differentiable,
        "critical-points": landscape.critical_points,
        "critical-points-k1": landscape.critical_points_of_one_patch,
        "gradient": landscape.gradient,
        "lipschitz-iterates": lipschitz.lipschitz_iterates,
        "quadratic-bound": lipschitz.quadratic_bound,
        "triangle": lipschitz.triangle,
        "lipschitz-coplanar": lipschitz.lipschitz_coplanar,
        "lipschitz-everywhere": lipschitz.lipschitz_everywhere,
        "closed-strip": strip.closed_strip,
        "norm-grows-inside": strip.norm_inside,
        "norm-falls-outside": strip.norm_outside,
    },
    "Descent": {
        "descent": descent.descent,
        "descent-amount": descent.descent_amount,
        "descent-step": descent.descent_step,
        "descent-printed-l1": descent.descent_printed_l1,
        "descent-printed-l0": descent.descent_printed_l0,
    },
    "Theorem 1": {
        "theorem-lagrangian": theorem.lagrangian,
        "monotone-angle": theorem.monotone_angle,
        "theorem-i": theorem.stationarity,
        "theorem-ii": theorem.rate,
        "theorem-iii-angle": theorem.limit_angle,
        "theorem-iii-angle-twice": theorem.limit_angle_beyond,
        "theorem-iii-error": theorem.limit_error,
    },
    "The proof of Theorem 1": {
        "cone": cone.cone,
        "thresholding-angle": cone.thresholding_angle,
        "norm-of-u": cone.norm_of_u,
        "beta-bound": cone.beta_bound_sharp,
        "equilibrium": limit.equilibrium,
        "not-all-small": limit.not_all_small,
        "c2-at-zero": limit.no_attraction,
        "parallel-limit": limit.parallel_limit,
        "sine-relation": limit.sine_relation,
        "sine-gives-angle": limit.sine_gives_angle,
        "limit-gradient": limit.limit_gradient,
        "error-sin-gamma": limit.error_by_gamma,
    },
    "Corollaries": {
        "corollary-1.1-identity": corollaries.identity,
        "corollary-1.1-cap": corollaries.cap,
        "shrinkage": corollaries.shrinkage,
        "corollary-1.2": corollaries.other_penalties,
        "corollary-1.2-printed": corollaries.other_penalties_printed,
    },
    "Claims in the text": {
        "high-probability": claims.high_probability,
        "global-limit": claims.global_limit,
        "beta-essential": claims.beta_essential,
        "beta-too-large": claims.beta_too_large,
        "admm-multiplier": admm.multiplier,
        "gap": admm.gap,
        "admm-performance": admm.performance,
        "loss-of-u": admm.loss_of_u,
        "penalty-order": claims.penalty_order,
        "only-the-threshold": claims.only_the_threshold,
    },
    "Ours: the gradient at u": {
        "u-limits": sparse_gradient.limits,
        "u-descent": sparse_gradient.descent,
        "u-rest": sparse_gradient.rest,
        "u-beside-rvsm": sparse_gradient.beside_rvsm,
    },
}
"""The parts of the page and the statements in each, in the order of the paper; the last part is not the paper's."""

STATEMENTS = {key: statement for part in PARTS.values() for key, statement in part.items()}
"""All statements by key, in the order of the page."""


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
        yield STATEMENTS[key](shared)
