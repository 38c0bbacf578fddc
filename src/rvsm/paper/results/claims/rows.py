"""The claims about the rows of the tables: the order of the penalties, the accuracy kept, and f(w) beside f(u)."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

from rvsm.paper.results.chance import difference
from rvsm.paper.results.claims.claim import Claim, Judged, Statement, at_least, more_than, not_yet, percent, ratio
from rvsm.paper.results.collections import Experiments, setting
from rvsm.paper.results.printed import PaperTable, label
from rvsm.paper.theory.verdict import Check
from rvsm.records import Outcome
from rvsm.report import Configuration

_WHERE = "Section 6, Table 1"
_BY_SPARSITY = ("vgg16-l0", "vgg16-tl1", "vgg16-l1")  # in the paper, from the most zeros to the fewest
_KEEP_ACCURACY = ("vgg16-l1", "vgg16-tl1", "vgg16-l0", "resnet18-rvsm-l0")
LOSS, ACCURACY = 0.1, 0.5
"""The meaning of "very similar": a tenth of the loss at w, and half a point of accuracy."""
ROWS = {
    "vgg16": ("vgg16-l1", "vgg16-tl1", "vgg16-l0", "vgg16-l0-unscaled"),
    "resnet18": ("resnet18-rvsm-l0",),
}
"""The rows in which w and u may differ at the end: those with a λ and a β.

With a target for sparsity, w = u at the end. In the authors' scripts w is overwritten by u after each
epoch, so the two differ only in their batch norm. Neither says anything about the claim.
"""
_UNSCALED = "-unscaled"


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
    printed, ends = more_than([upper.points, lower.points]), more_than([whole.points])
    instead = ("ℓ1 is more accurate than ℓ0.", ends, whole.told_apart)
    return statement.judged(
        printed,
        f"accuracy of u: ℓ1 {percent(l1)}, Tℓ1 {percent(tl1)}, ℓ0 {percent(l0)}; ℓ1 − Tℓ1 is {upper}; Tℓ1 − ℓ0 is"
        f" {lower}; ℓ1 − ℓ0 is {whole}; the paper has 93.7, 93.07 and 92.54 %. The margin is the smaller step, in"
        " points.",
        noisy=[(step.points, step.resolution) for step in (upper, lower)],
        correction=instead if ends.passed and not printed.passed else None,
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


def loss_of_u(table: PaperTable) -> Claim:
    """Return the claim that u and w have the same loss and accuracy, for the rows in which they may differ."""
    rows = ROWS[table.network]
    statement = Statement(
        f"loss-of-u-{table.network}",
        "Section 3.3",
        "f(w) and f(u) behave very similarly on deep networks (here: the test losses differ by at most"
        f" {100 * LOSS:g} % of that at w, and the accuracies by at most {ACCURACY} points).",
    )

    def claim(experiments: Experiments) -> Judged:
        there = [experiments[name] for name in rows if name in experiments]
        if not there:
            return statement.open(f"needs {'one of ' * (len(rows) > 1)}{', '.join(rows)}")
        return statement.judged(
            _losses(there) & _accuracies(there),
            f"{'; '.join(map(_described, there))}{not_yet(rows, experiments)}. The margin is the fraction of the"
            " allowed difference that is left. Batch norm is re-estimated for u, not for w.",
            correction=_correction(there),
        )

    return claim


def _correction(there: Sequence[Configuration]) -> tuple[str, Check, bool] | None:
    """Return what is true if the claim as printed is not, its check, and whether it keeps the conclusion.

    If the accuracies agree but the losses do not, the claim, which is about losses, is refuted, not mended.
    """
    losses = _losses(there)
    if (losses & _accuracies(there)).passed or not isfinite(losses.margin):
        return None
    scaled = [e for e in there if not e.name.endswith(_UNSCALED)]
    candidates = [("The accuracies agree, the losses do not.", _accuracies(there), False)]
    if scaled and len(scaled) < len(there):
        total = "where the total pull Σηβ is that of 200 epochs"
        candidates.insert(0, (f"True {total}.", _losses(scaled) & _accuracies(scaled), True))
        candidates.append((f"The accuracies agree {total}, the losses do not.", _accuracies(scaled), False))
    return next((one for one in candidates if one[1].passed), None)


def _losses(experiments: Sequence[Configuration]) -> Check:
    return at_least(1 - ratio(abs(o.u.loss - o.w.loss), o.w.loss) / LOSS for o in _outcomes(experiments))


def _accuracies(experiments: Sequence[Configuration]) -> Check:
    points = [100 * abs(o.u.accuracy - o.w.accuracy) for o in _outcomes(experiments)]
    return at_least(1 - round(apart, 4) / ACCURACY for apart in points)


def _outcomes(experiments: Sequence[Configuration]) -> list[Outcome]:
    return [o for e in experiments for o in e.outcomes]


def _described(e: Configuration) -> str:
    """Return loss and accuracy at w and u, and the epoch with the largest gap between the validation losses."""
    w, u = e.mean(lambda o: o.w.loss), e.mean(lambda o: o.u.loss)
    text = (
        f"{e.name}: test loss {w.text(digits=4)} at w and {u.text(digits=4)} at u, accuracy"
        f" {percent(e.accuracy_w)} and {percent(e.accuracy_u)}"
    )
    apart = [
        (ratio(abs(k.loss_u - k.loss_w), k.loss_w), k.epoch)
        for k in e.first.evaluations
        if k.loss_w and k.loss_u is not None
    ]
    if not apart:
        return text
    most, epoch = max(apart)
    return f"{text}, validation losses at most {100 * most:.3g} % apart (epoch {epoch:g} of {e.outcomes[0].epochs})"
