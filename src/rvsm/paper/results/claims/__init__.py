"""The paper's claims about deep networks, each a function of the experiments that returns a verdict.

Each claim is put into numbers: the meaning of "very similar" or "much better" is part of its text, and was fixed
before any run was evaluated. If runs are missing, the claim is `Open`. If the accuracies are closer than the runs can
resolve, it is `Undecided`. The resolution of single runs was set later, when the first rows were known: it can only
withhold a verdict, not reverse one.
"""

from collections.abc import Iterator

from rvsm.paper.results.claims.admm import Channels, against_admm, at_equal_sparsity, channels
from rvsm.paper.results.claims.claim import Claim, Judged, Open, Undecided
from rvsm.paper.results.claims.rows import accuracy_kept, accuracy_order, loss_of_u, sparsity_order
from rvsm.paper.results.collections import Experiments
from rvsm.paper.results.printed import PAIRS, TABLE_1, TABLE_2

CLAIMS: dict[str, Claim] = {
    "loss-of-u-vgg16": loss_of_u(TABLE_1),
    "loss-of-u-resnet18": loss_of_u(TABLE_2),
    "penalty-sparsity": sparsity_order,
    "penalty-accuracy": accuracy_order,
    "rvsm-admm-published": against_admm("published"),
    "rvsm-admm-proper": against_admm("proper"),
    "rvsm-admm-equal-sparsity": at_equal_sparsity,
    **{f"admm-channels-{kind}": channels(kind, *pair) for kind, pair in PAIRS.items()},
    "accuracy-kept-vgg16": accuracy_kept(TABLE_1),
    "accuracy-kept-resnet18": accuracy_kept(TABLE_2),
}
"""All claims, by the key of their verdict."""


def judged(experiments: Experiments) -> Iterator[Judged]:
    """Judge all claims."""
    for claim in CLAIMS.values():
        yield claim(experiments)


__all__ = ["CLAIMS", "Channels", "Judged", "Open", "Undecided", "judged"]
