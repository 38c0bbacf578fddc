"""The claims about RVSM and ADMM, Table 2."""

from rvsm.report.difference import Difference
from rvsm.results.claims.claim import CANNOT, Experiments, Judged, Statement, at_least, both, percent
from rvsm.results.paper import PAIRS

MUCH = 23.31
"""What "much better sparsity" is taken to mean, in points: half of the paper's 93.70 − 47.08."""
EQUAL = 0.5
"""Points of zeros by which networks of equal sparsity may differ."""
_WHERE = "Section 6, Table 2"


def against_admm(experiments: Experiments) -> Judged:
    """Judge that RVSM has many more zeros than ADMM and is slightly more accurate, both as published.

    The scripts measure w, which is overwritten by u, with the batch norm of the training: so does this claim.
    """
    statement = Statement(
        "rvsm-admm-published",
        _WHERE,
        "RVSM promotes much better sparsity than ADMM (93.70 % vs. 47.08 %) and has slightly better performance"
        f" (here: at least {MUCH} points more zeros, half of the paper's difference, and no less accuracy).",
    )
    if (missing := statement.without(PAIRS["published"], experiments)) is not None:
        return missing
    rvsm, admm = (experiments[name] for name in PAIRS["published"])
    zeros = 100 * (rvsm.sparsity.mean - admm.sparsity.mean)
    accuracy = Difference.of(rvsm.accuracy_of_w, admm.accuracy_of_w)
    told = [f"{e.name} {percent(e.accuracy_of_w)} with {percent(e.sparsity)} zeros" for e in (rvsm, admm)]
    return statement.judged(
        at_least([zeros - MUCH, accuracy.points]),
        f"as the authors' scripts do and measure it, with w = u and the batch norm of the training: {'; '.join(told)};"
        f" {zeros:+.2f} points of zeros; accuracy {accuracy}. With batch norm estimated again for u:"
        f" {percent(rvsm.accuracy)} and {percent(admm.accuracy)}.{_as_written(experiments)}"
        f"{_what_was_asked(experiments)} The margin is in points.",
        certain=at_least([zeros - MUCH]),
        noisy=[(accuracy.points, accuracy.resolution)],
    )


def _as_written(experiments: Experiments) -> str:
    """Return the same comparison for the methods as the paper writes them, if both were run."""
    rvsm, admm = (experiments.get(name) for name in PAIRS["proper"])
    return "" if rvsm is None or admm is None else f" As the paper writes the methods: {both(rvsm)}; {both(admm)}."


def _what_was_asked(experiments: Experiments) -> str:
    """Return how many zeros ADMM was asked for; that it has them is so by construction, and no finding."""
    found = {
        share: percent(e.sparsity)
        for share, name in (("60 %", PAIRS["proper"][1]), ("93.7 %", PAIRS["equal-sparsity"][1]))
        if (e := experiments.get(name)) is not None
    }
    if not found:
        return ""
    has = " and ".join(f"{zeros} where {share} are asked for" for share, zeros in found.items())
    return (
        " The zeros of ADMM are an option, not an outcome (the scripts ask for 60 %, by a percentile of signed"
        f" weights): by magnitude it has {has}. At equal sparsity, see rvsm-admm-equal-sparsity."
    )


def at_equal_sparsity(experiments: Experiments) -> Judged:
    """Judge that RVSM is no less accurate than ADMM where both have as many zeros."""
    statement = Statement(
        "rvsm-admm-equal-sparsity",
        _WHERE,
        "RVSM has slightly better performance than ADMM (here: with 93.7 % zeros in both, no less accuracy).",
    )
    if (missing := statement.without(PAIRS["equal-sparsity"], experiments)) is not None:
        return missing
    rvsm, admm = (experiments[name] for name in PAIRS["equal-sparsity"])
    apart = 100 * abs(rvsm.sparsity.mean - admm.sparsity.mean)
    if apart > EQUAL:
        return statement.open(f"the two differ by {apart:.2f} points of zeros", CANNOT)
    accuracy = Difference.of(rvsm.accuracy, admm.accuracy)
    pruned = experiments.get("resnet18-magnitude-937")
    also = ""
    if pruned is not None:
        also = f"; {both(pruned)}; RVSM − it is {Difference.of(rvsm.accuracy, pruned.accuracy)}"
    return statement.judged(
        at_least([accuracy.points]),
        f"{both(rvsm)}; {both(admm)}; RVSM − ADMM is {accuracy}{also}. The margin is in points.",
        noisy=[(accuracy.points, accuracy.resolution)],
    )
