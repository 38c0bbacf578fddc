"""What all claims share: the statement before the runs, and the text for the numbers of the runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import torch

from rvsm.paper.results.collections import Experiments
from rvsm.paper.theory.verdict import Check, Verdict, check
from rvsm.report import Configuration
from rvsm.report.statistics import Mean

NOT_RUN, CANNOT = "not run yet", "cannot be judged"


@dataclass(frozen=True)
class Claimed:
    """A claim of the paper: its key, its place in the paper, and its text."""

    statement: str
    where: str
    claim: str

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Open(Claimed):
    """A claim that is not judged, and why: its runs are missing, or they do not fit each other."""

    reason: str
    verdict: str = NOT_RUN


@dataclass(frozen=True)
class Undecided(Claimed):
    """A claim about accuracy whose margin, in points, is smaller than what the runs can resolve."""

    margin: float
    evidence: str
    verdict: str = "not told apart"


Judged = Verdict | Open | Undecided
Claim = Callable[[Experiments], Judged]


@dataclass(frozen=True)
class Statement(Claimed):
    """A claim before the runs are evaluated."""

    def open(self, reason: str, verdict: str = NOT_RUN) -> Open:
        """Return the claim as not judged."""
        return Open(self.statement, self.where, self.claim, reason, verdict)

    def without(self, names: Sequence[str], experiments: Experiments) -> Open | None:
        """Return the claim as not judged if an experiment that it needs is missing; otherwise None."""
        missing = [name for name in names if name not in experiments]
        return self.open(f"needs {', '.join(missing)}") if missing else None

    def judged(
        self,
        printed: Check,
        evidence: str,
        *,
        certain: Check | None = None,
        noisy: Sequence[tuple[float, float]] = (),
        correction: tuple[str, Check, bool] | None = None,
    ) -> Verdict | Undecided:
        """Return the verdict that the checks give.

        Args:
            printed: the check of the whole claim.
            evidence: the numbers.
            certain: the check of the clauses that another seed would not change; it alone can make the claim fail.
            noisy: the slack and the resolution of each clause about accuracy, in points. If no clause is violated
                by as much as its resolution, and one is within it, the claim is not told apart from its opposite.
            correction: what is true instead, its check, and whether it mends the claim: keeps its conclusion.

        """
        fails = any(slack < 0 and slack <= -least for slack, least in noisy)
        fails = fails or (certain is not None and not certain.passed)
        if not fails and any(abs(slack) < least for slack, least in noisy):
            return Undecided(self.statement, self.where, self.claim, printed.margin, evidence)
        instead, corrected, mends = correction or (None, None, False)
        return Verdict(
            statement=self.statement,
            where=self.where,
            claim=self.claim,
            printed=printed,
            evidence=evidence,
            correction=instead,
            corrected=corrected,
            mends=mends,
        )


def at_least(slack: Iterable[float]) -> Check:
    """Return the check that no slack is below zero; NaN is a violation."""
    return check(torch.tensor(list(slack), dtype=torch.float64))


def more_than(slack: Iterable[float]) -> Check:
    """Return the check that all are above zero: equal is not more.

    >>> more_than([0.0, 2.0]).passed, at_least([0.0, 2.0]).passed, at_least([float("nan"), 2.0]).passed
    (False, True, False)
    """
    return check(torch.tensor(list(slack), dtype=torch.float64), tolerance=-1e-9)


def ratio(one: float, other: float) -> float:
    """Return a ratio; NaN, which no check passes, if the ratio is undefined."""
    return one / other if other > 0 and isfinite(one) else float("nan")


def percent(mean: Mean) -> str:
    """Return a fraction in percent, with its spread."""
    return f"{mean.percent} %"


def both(e: Configuration) -> str:
    """Return an experiment's accuracy and zeros."""
    return f"{e.name} {percent(e.accuracy_u)} with {percent(e.sparsity)} zeros"


def not_yet(names: Iterable[str], experiments: Experiments) -> str:
    """Return a clause that lists the missing experiments; empty if there are none."""
    missing = [name for name in names if name not in experiments]
    return f"; not run yet: {', '.join(missing)}" if missing else ""
