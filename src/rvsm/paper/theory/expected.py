"""The recorded verdicts of this version of the project.

A difference means that the core, the laboratory or the mathematics has changed. No statement reads this table.
"""

from collections.abc import Iterable

from rvsm.paper.theory.verdict import Outcome, Verdict

EXPECTED: dict[str, tuple[Outcome, bool | None]] = {
    "lemma-1": ("holds", None),
    "simploss": ("holds", None),
    "thresholding": ("holds", None),
    "moreau": ("holds", None),
    "differentiable": ("holds", None),
    "critical-points": ("holds", None),
    "critical-points-k1": ("holds", None),
    "gradient": ("holds", None),
    "lipschitz-iterates": ("holds", None),
    "quadratic-bound": ("holds", None),
    "triangle": ("holds", None),
    "lipschitz-coplanar": ("holds", None),
    "lipschitz-everywhere": ("holds", None),
    "closed-strip": ("holds with correction", True),
    "norm-grows-inside": ("fails", True),
    "norm-falls-outside": ("holds", None),
    "descent": ("holds", None),
    "descent-amount": ("holds", None),
    "descent-step": ("holds", None),
    "descent-printed-l1": ("holds with correction", True),
    "descent-printed-l0": ("fails", True),
    "theorem-lagrangian": ("holds", None),
    "monotone-angle": ("fails", True),
    "theorem-i": ("holds", None),
    "theorem-ii": ("holds", None),
    "theorem-iii-angle": ("holds", None),
    "theorem-iii-angle-twice": ("holds", None),
    "theorem-iii-error": ("holds", None),
    "cone": ("holds", None),
    "thresholding-angle": ("holds", None),
    "norm-of-u": ("fails", True),
    "beta-bound": ("holds", None),
    "equilibrium": ("holds", None),
    "not-all-small": ("fails", True),
    "c2-at-zero": ("fails", True),
    "parallel-limit": ("fails", True),
    "sine-relation": ("holds", None),
    "sine-gives-angle": ("holds", None),
    "limit-gradient": ("holds", None),
    "error-sin-gamma": ("fails", True),
    "corollary-1.1-identity": ("holds", None),
    "corollary-1.1-cap": ("holds with correction", True),
    "shrinkage": ("holds", None),
    "corollary-1.2": ("holds with correction", True),
    "corollary-1.2-printed": ("fails", True),
    "high-probability": ("holds", None),
    "global-limit": ("holds with correction", True),
    "beta-essential": ("holds with correction", True),
    "beta-too-large": ("holds", None),
    "admm-multiplier": ("holds", None),
    "gap": ("holds", None),
    "admm-performance": ("fails", True),
    "loss-of-u": ("fails", True),
    "penalty-order": ("holds", None),
    "only-the-threshold": ("fails", True),
    "u-limits": ("holds", None),
    "u-descent": ("holds", None),
    "u-rest": ("holds", None),
    "u-beside-rvsm": ("holds", None),
}
"""Statement → its verdict, and whether its correction passes (None if it has none)."""


def differences(verdicts: Iterable[Verdict]) -> list[str]:
    """Return a sentence for each verdict that is not as expected; an empty list if all are.

    >>> from rvsm.paper.theory.statements import run
    >>> differences(run(["gradient"], quick=True))
    []
    """
    found = []
    for verdict in verdicts:
        expected = EXPECTED.get(verdict.statement)
        if expected is None:
            found.append(f"{verdict.statement}: {verdict.verdict}, but no expectation is recorded for it")
        elif (verdict.verdict, verdict.correction_holds) != expected:
            found.append(
                f"{verdict.statement}: expected “{_told(*expected)}” but found"
                f" “{_told(verdict.verdict, verdict.correction_holds)}” (margin {verdict.margin:.2g})"
            )
    return found


def _told(outcome: Outcome, correction_holds: bool | None) -> str:
    if correction_holds is None:
        return outcome
    return f"{outcome}; its correction {'holds' if correction_holds else 'fails'}"
