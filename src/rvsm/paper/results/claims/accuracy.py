"""The claim that sparse networks keep their accuracy."""

from rvsm.paper.results.chance import difference
from rvsm.paper.results.claims.claim import Claim, Judged, Statement, at_least, not_yet, percent
from rvsm.paper.results.collections import Experiments, setting
from rvsm.paper.results.printed import PaperTable, label

ROWS = ("vgg16-l1", "vgg16-tl1", "vgg16-l0", "resnet18-rvsm-l0")


def accuracy_kept(table: PaperTable) -> Claim:
    """Return the claim that RVSM loses no more to the dense network than in the rows of a paper's table."""
    base = table.base.experiment
    losses = {row.experiment: table.lost(row) for row in table.rows if row.experiment in ROWS}
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
