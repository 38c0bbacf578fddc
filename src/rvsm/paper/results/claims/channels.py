"""The claim that ADMM leaves channels small where RVSM makes them zero."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rvsm.paper.results.claims.claim import CANNOT, Claim, Judged, Statement, more_than, percent
from rvsm.paper.results.collections import Experiments
from rvsm.report import Configuration

SMALL = 0.01
"""A channel is small if its norm is below this fraction of the largest norm of its layer."""


@dataclass(frozen=True)
class Channels:
    """The number of output channels of u that are zero, and that are small but not zero; the mean over the seeds."""

    zero: float
    small: float
    total: float

    @classmethod
    def of(cls, e: Configuration) -> "Channels":
        """Count the channels of all layers."""
        counts = [_counted(o.norms_u) for o in e.outcomes]
        zero, small, total = (sum(column) / len(counts) for column in zip(*counts, strict=True))
        return cls(zero, small, total)

    def __str__(self) -> str:
        return f"{self.zero:g} of {self.total:g} channels are zero and {self.small:g} small"


def _counted(norms: Mapping[str, Sequence[float]]) -> tuple[int, int, int]:
    zero = small = total = 0
    for layer in norms.values():
        largest = max(layer, default=0.0)
        zero += sum(norm == 0 for norm in layer)
        small += sum(0 < norm < SMALL * largest for norm in layer)
        total += len(layer)
    return zero, small, total


def channels(kind: str, rvsm: str, admm: str) -> Claim:
    """Return the claim for a pair of experiments."""
    statement = Statement(
        f"admm-channels-{kind}",
        "Section 3.3; Section 6, in the source only",
        "ADMM has many channels with very small norms, but not as many with zero norms, as the multiplier z"
        " reduces the sparsity (here, for the output channels of u: fewer are zero than with RVSM, and fewer are"
        f" zero than have a nonzero norm below {100 * SMALL:g} % of the layer's largest).",
    )

    def claim(experiments: Experiments) -> Judged:
        if (missing := statement.without((rvsm, admm), experiments)) is not None:
            return missing
        ours, theirs = Channels.of(experiments[rvsm]), Channels.of(experiments[admm])
        if not ours.total or not theirs.total:
            return statement.open("the results have no channel norms", CANNOT)
        fewer, crowd = more_than([ours.zero - theirs.zero]), more_than([theirs.small - theirs.zero])
        half = {
            (True, False): (
                "ADMM has fewer zero channels than RVSM, but not more small channels than zero ones.",
                fewer,
            ),
            (False, True): (
                "ADMM has more small channels than zero ones, but no fewer zero ones than RVSM.",
                crowd,
            ),
        }
        return statement.judged(
            fewer & crowd,
            f"{rvsm} ({percent(experiments[rvsm].sparsity)} zeros): {ours}; {admm}"
            f" ({percent(experiments[admm].sparsity)} zeros): {theirs}. The margin is in channels.",
            correction=half.get((fewer.passed, crowd.passed)),
            mends=True,
        )

    return claim
