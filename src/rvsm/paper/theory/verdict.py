"""The verdict on a statement, and how measurements become a verdict."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any, Literal

import torch
from torch import Tensor

Outcome = Literal["holds", "holds with correction", "fails"]


@dataclass(frozen=True)
class Verdict:
    """The verdict on one statement.

    Attributes:
        statement: its key in `STATEMENTS`.
        where: its place in the paper.
        claim: the conclusion as printed, with the relevant hypotheses; for a reading, the laboratory's
            interpretation of the paper's words.
        verdict: "holds": no case that was run violates it, which is not a proof; "holds with correction": the
            conclusion holds if a hypothesis or a constant is added, or a clause is dropped; "fails": it is not
            true as printed, though another statement may be true instead.
        margin: the smallest slack of the statement as printed, over all cases; negative if it is violated.
        evidence: the numbers of this run.
        correction: the statement that is true instead, checked by the same runs.
        correction_margin: the smallest slack of the correction; None if there is none.
        counterexample: the smallest counterexample: its parameters and the result of its run.
        reading: whether the claim's wording or measure is the laboratory's.
        ours: whether the statement is not the paper's but the project's own.

    """

    statement: str
    where: str
    claim: str
    verdict: Outcome
    margin: float
    evidence: str
    correction: str | None = None
    correction_margin: float | None = None
    counterexample: dict[str, Any] | None = None
    reading: bool = False
    ours: bool = False

    @property
    def label(self) -> str:
        """The label of the claim."""
        return "read as" if self.reading else "claim"

    @property
    def correction_holds(self) -> bool | None:
        """Whether the correction passed its check; None if there is no correction."""
        return None if self.correction_margin is None else self.correction_margin >= 0

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """The smallest slack, bound + tolerance − measurement, over a number of cases."""

    margin: float
    cases: int

    @property
    def passed(self) -> bool:
        """Whether no case is violated."""
        return self.margin >= 0

    def __and__(self, other: "Check") -> "Check":
        return Check(min(self.margin, other.margin), self.cases + other.cases)


def check(slack: Tensor | float, *, tolerance: float = 0.0) -> Check:
    """Return the smallest slack of all cases.

    A check of no cases raises an error, and NaN is a violation: neither may pass.

    >>> check(torch.tensor([0.5, 0.25]))
    Check(margin=0.25, cases=2)
    >>> check(torch.tensor([0.5, float("nan")])).passed
    False
    """
    values = torch.as_tensor(slack, dtype=torch.float64).flatten()
    if not len(values):
        raise RuntimeError("a check needs at least one case but has none; give the sweep runs that meet the hypotheses")
    smallest = float(values.min()) + tolerance
    return Check(float("-inf") if isnan(smallest) else smallest, len(values))


def judge(
    statement: str,
    *,
    where: str,
    claim: str,
    printed: Check,
    evidence: str,
    correction: str | None = None,
    corrected: Check | None = None,
    mends: bool = False,
    counterexample: Mapping[str, Any] | None = None,
    reading: bool = False,
    ours: bool = False,
) -> Verdict:
    """Return the verdict that the checks give.

    Args:
        statement: the key.
        where: the place in the paper.
        claim: the conclusion as printed.
        printed: the check of the statement as printed.
        evidence: the numbers of this run.
        correction: what is true instead.
        corrected: the check of the correction.
        mends: the correction keeps the conclusion and adds a hypothesis or a constant, or drops a clause. Otherwise it
            is another statement, and the printed one fails.
        counterexample: the smallest counterexample, as run.
        reading: whether the claim is the laboratory's interpretation of the paper's words.
        ours: whether the statement is the project's own; its place is then not one in the paper.

    """
    verdict: Outcome = "fails"
    if printed.passed:
        verdict = "holds"
    elif mends and corrected is not None and corrected.passed:
        verdict = "holds with correction"
    return Verdict(
        statement=statement,
        where=where,
        claim=claim,
        verdict=verdict,
        margin=printed.margin,
        evidence=evidence,
        correction=correction,
        correction_margin=None if corrected is None else corrected.margin,
        counterexample=None if counterexample is None else dict(counterexample),
        reading=reading,
        ours=ours,
    )
