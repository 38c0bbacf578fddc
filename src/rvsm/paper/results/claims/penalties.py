"""The claims about the order of the penalties, Table 1."""

from itertools import pairwise

from rvsm.paper.results.chance import difference
from rvsm.paper.results.claims.claim import Judged, Statement, more_than, percent
from rvsm.paper.results.collections import Experiments
from rvsm.paper.results.printed import label

_WHERE = "Section 6, Table 1"
_FALLING = ("vgg16-l0", "vgg16-tl1", "vgg16-l1")


def sparsity_order(experiments: Experiments) -> Judged:
    """Judge that ℓ0 gives the best sparsity, and Tℓ1 is between ℓ0 and ℓ1."""
    statement = Statement(
        "penalty-sparsity", _WHERE, "ℓ0 gives the best sparsity, Tℓ1 is in the middle, ℓ1 gives the least."
    )
    if (missing := statement.without(_FALLING, experiments)) is not None:
        return missing
    zeros = {name: experiments[name].sparsity for name in _FALLING}
    listed = ", ".join(f"{label(name)} {percent(mean)}" for name, mean in zeros.items())
    return statement.judged(
        more_than(100 * (zeros[a].mean - zeros[b].mean) for a, b in pairwise(_FALLING)),
        f"zeros: {listed}; the paper has 86.89, 63.34 and 35.68 %. The margin is the smaller step, in points.",
    )


def accuracy_order(experiments: Experiments) -> Judged:
    """Judge that ℓ1 gives the best accuracy, and Tℓ1 is between ℓ1 and ℓ0."""
    statement = Statement(
        "penalty-accuracy", _WHERE, "ℓ1 gives the best accuracy, Tℓ1 is in the middle, ℓ0 gives the least."
    )
    if (missing := statement.without(_FALLING, experiments)) is not None:
        return missing
    l0, tl1, l1 = (experiments[name].accuracy_u for name in _FALLING)
    upper, lower, whole = difference(l1, tl1), difference(tl1, l0), difference(l1, l0)
    ends = more_than([whole.points])
    printed = more_than([upper.points, lower.points])
    return statement.judged(
        printed,
        f"accuracy of u: ℓ1 {percent(l1)}, Tℓ1 {percent(tl1)}, ℓ0 {percent(l0)}; ℓ1 − Tℓ1 is {upper}; Tℓ1 − ℓ0 is"
        f" {lower}; ℓ1 − ℓ0 is {whole}; the paper has 93.7, 93.07 and 92.54 %. The margin is the smaller step, in"
        " points.",
        noisy=[(step.points, step.resolution) for step in (upper, lower)],
        correction=("ℓ1 gives more accuracy than ℓ0.", ends) if ends.passed and not printed.passed else None,
        mends=whole.told_apart,
    )
