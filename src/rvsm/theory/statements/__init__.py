"""Every statement of the paper as a function of a sweep that returns a verdict, one file for each part of the paper.

To add one, write the function in the file of its part, add a line here, and its expectation to `rvsm.theory.expected`.
"""

from collections.abc import Callable, Iterable, Iterator

from rvsm.theory.statements import claims, corollaries, descent, lemmas, preliminaries, theorem
from rvsm.theory.sweep import Sweep
from rvsm.theory.verdict import Verdict

Statement = Callable[[Sweep], Verdict]

STATEMENTS: dict[str, Statement] = {
    "lemma-1": preliminaries.lemma_1,
    "simploss": preliminaries.simploss,
    "thresholding": preliminaries.thresholding,
    "moreau": preliminaries.moreau,
    "admm-multiplier": claims.multiplier,
    "loss-of-u": claims.loss_of_u,
    "lipschitz-iterates": lemmas.lipschitz_iterates,
    "theorem-lagrangian": theorem.lagrangian,
    "theorem-i": theorem.stationarity,
    "theorem-ii": theorem.rate,
    "theorem-iii-angle": theorem.limit_angle,
    "theorem-iii-error": theorem.limit_error,
    "monotone-angle": theorem.monotone_angle,
    "beta-too-large": claims.beta_too_large,
    "corollary-1.1-identity": corollaries.identity,
    "corollary-1.1-cap": corollaries.cap,
    "shrinkage": corollaries.shrinkage,
    "corollary-1.2": corollaries.other_penalties,
    "corollary-1.2-printed": corollaries.other_penalties_printed,
    "gradient": lemmas.gradient,
    "critical-points": lemmas.critical_points,
    "critical-points-k1": lemmas.critical_points_of_one_patch,
    "lipschitz-coplanar": lemmas.lipschitz_coplanar,
    "lipschitz-everywhere": lemmas.lipschitz_everywhere,
    "closed-strip": lemmas.closed_strip,
    "descent": descent.descent,
    "descent-step": descent.descent_step,
    "descent-printed-l1": descent.descent_printed_l1,
    "descent-printed-l0": descent.descent_printed_l0,
    "beta-bound": claims.beta_bound_sharp,
    "thresholding-angle": claims.thresholding_angle,
    "sine-relation": theorem.sine_relation,
    "not-all-small": theorem.not_all_small,
    "error-sin-gamma": theorem.error_by_gamma,
}
"""All statements by key, in the order of the paper."""


def run(keys: Iterable[str] | None = None, *, quick: bool = False, sweep: Sweep | None = None) -> Iterator[Verdict]:
    """Yield the verdict on each statement, as it is found.

    Args:
        keys: the statements; all of them if None.
        quick: a small sweep for a fast look.
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
