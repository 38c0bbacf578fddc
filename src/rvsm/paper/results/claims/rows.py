"""The claims about the rows of the tables: the order of the penalties, and how much accuracy is kept."""

from itertools import pairwise

from rvsm.paper.results.chance import difference
from rvsm.paper.results.claims.claim import Claim, Judged, Statement, at_least, more_than, not_yet, percent
from rvsm.paper.results.collections import Experiments, setting
from rvsm.paper.results.printed import PaperTable, label

_WHERE = "Section 6, Table 1"
_BY_SPARSITY = ("vgg16-l0", "vgg16-tl1", "vgg16-l1")  # in the paper, from the most zeros to the fewest
_KEEP_ACCURACY = ("vgg16-l1", "vgg16-tl1", "vgg16-l0", "resnet18-rvsm-l0")


def sparsity_order(experiments: Experiments) -> Judged:
    """Judge that ℓ0 gives the best sparsity, with Tℓ1 between ℓ0 and ℓ1."""
    statement = Statement(
        "penalty-sparsity", _WHERE, "ℓ0 gives the best sparsity, Tℓ1 is in the middle, ℓ1 gives the least."
    )
    if (missing := statement.without(_BY_SPARSITY, experiments)) is not None:
        return missing
    zeros = {name: experiments[name].sparsity for name in _BY_SPARSITY}
    listed = ", ".join(f"{label(name)} {percent(mean)}" for name, mean in zeros.items())
    return statement.judged(
        more_than(100 * (zeros[a].mean - zeros[b].mean) for a, b in pairwise(_BY_SPARSITY)),
        f"zeros: {listed}; the paper has 86.89, 63.34 and 35.68 %. The margin is the smaller step, in points.",
    )


def accuracy_order(experiments: Experiments) -> Judged:
    """Judge that ℓ1 gives the best accuracy, with Tℓ1 between ℓ1 and ℓ0."""
    statement = Statement(
        "penalty-accuracy", _WHERE, "ℓ1 gives the best accuracy, Tℓ1 is in the middle, ℓ0 gives the least."
    )
    if (missing := statement.without(_BY_SPARSITY, experiments)) is not None:
        return missing
    l0, tl1, l1 = (experiments[name].accuracy_u for name in _BY_SPARSITY)
    upper, lower, whole = difference(l1, tl1), difference(tl1, l0), difference(l1, l0)
    ends = more_than([whole.points])
    printed = more_than([upper.points, lower.points])
    return statement.judged(
        printed,
        f"accuracy of u: ℓ1 {percent(l1)}, Tℓ1 {percent(tl1)}, ℓ0 {percent(l0)}; ℓ1 − Tℓ1 is {upper}; Tℓ1 − ℓ0 is"
        f" {lower}; ℓ1 − ℓ0 is {whole}; the paper has 93.7, 93.07 and 92.54 %. The margin is the smaller step, in"
        " points.",
        noisy=[(step.points, step.resolution) for step in (upper, lower)],
        correction=("ℓ1 is more accurate than ℓ0.", ends) if ends.passed and not printed.passed else None,
        mends=whole.told_apart,
    )


def accuracy_kept(table: PaperTable) -> Claim:
    """Return the claim that RVSM loses no more to the dense network than in the rows of the paper's table."""
    base = table.base.experiment
    losses = {row.experiment: table.lost(row) for row in table.rows if row.experiment in _KEEP_ACCURACY}
    allowed = {name: lost for name, lost in losses.items() if lost is not None}
    printed = ", ".join(f"{label(name)} {lost:.2f}" for name, lost in allowed.items())
    statement = Statement(
        f"accuracy-kept-{table.network}",
        f"Section 6, {table.title.partition(':')[0]}",
        "RVSM maintains very good accuracy (here: it loses at most as many points to the dense network as in the"
        f" paper: {printed}).",
    )

    def claim(experiments: Experiments) -> Judged:
        there = [name for name in allowed if name in experiments]
        if base not in experiments or not there:
            return statement.open(f"needs {base} and one of {', '.join(allowed)}")
        dense = experiments[base].accuracy_u
        gained = {name: difference(experiments[name].accuracy_u, dense) for name in there}
        slack = {name: allowed[name] + of.points for name, of in gained.items()}
        listed = "; ".join(f"{label(name)} {of} (paper: −{allowed[name]:.2f})" for name, of in gained.items())
        return statement.judged(
            at_least(slack.values()),
            f"{label(base)} {percent(dense)}; {listed}{not_yet(allowed, experiments)}. The margin is in points."
            f" The training is not the paper's: {setting(experiments[base])}.",
            noisy=[(slack[name], of.resolution) for name, of in gained.items()],
        )

    return claim
