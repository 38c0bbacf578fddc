"""The verdict on a statement, and how measurements become a verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal

import torch
from torch import Tensor

Outcome = Literal["holds", "holds with correction", "fails"]


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


@dataclass(frozen=True)
class Verdict:
    """The verdict on one statement, which follows from its checks.

    Attributes:
        where: its place in the paper.
        claim: the conclusion as printed, with the relevant hypotheses; for a reading, the laboratory's
            interpretation of the paper's words.
        printed: the check of the statement as printed.
        evidence: the numbers of this run.
        correction: the statement that is true instead.
        corrected: the check of the correction, by the same runs.
        mends: whether the correction keeps the conclusion and adds a hypothesis or a constant, or drops a clause.
            Otherwise it is another statement, and the printed one fails.
        counterexample: the smallest counterexample: its parameters and the result of its run.
        reading: whether the claim's wording or measure is the laboratory's.
        ours: whether the statement is not the paper's but the project's own.
        statement: its key in the registry, which adds it.

    """

    where: str
    claim: str
    printed: Check
    evidence: str
    correction: str | None = None
    corrected: Check | None = None
    mends: bool = False
    counterexample: Mapping[str, Any] | None = None
    reading: bool = False
    ours: bool = False
    statement: str = ""

    @property
    def verdict(self) -> Outcome:
        """The outcome.

        "holds": no case that was run violates the statement, which is not a proof. "holds with correction": the
        conclusion holds with the correction. "fails": it is not true as printed, though the correction may be.
        """
        if self.printed.passed:
            return "holds"
        return "holds with correction" if self.mends and self.correction_holds else "fails"

    @property
    def margin(self) -> float:
        """The smallest slack of the statement as printed, over all cases; negative if it is violated."""
        return self.printed.margin

    @property
    def correction_holds(self) -> bool | None:
        """Whether the correction passed its check; None if there is no correction."""
        return None if self.corrected is None else self.corrected.passed

    @property
    def label(self) -> str:
        """The label of the claim."""
        return "read as" if self.reading else "claim"

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {
            **{name: getattr(self, name) for name in ("statement", "where", "claim", "verdict", "margin", "evidence")},
            "correction": self.correction,
            "correction_margin": None if self.corrected is None else self.corrected.margin,
            "counterexample": self.counterexample,
            "reading": self.reading,
            "ours": self.ours,
        }
