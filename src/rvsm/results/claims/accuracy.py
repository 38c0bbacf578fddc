"""The claim that sparse networks keep their accuracy."""

from rvsm.results.claims.claim import Claim, Experiments, Open, Statement, at_least, not_yet, percent
from rvsm.results.experiments import Difference
from rvsm.results.paper import PaperTable, label
from rvsm.theory.verdict import Verdict

ROWS = ("vgg16-l1", "vgg16-tl1", "vgg16-l0", "resnet18-rvsm-l0")


def accuracy_kept(table: PaperTable) -> Claim:
    """Return the claim that RVSM loses no more to the dense network than in the rows of a paper's table."""
    base = table.base.experiment
    allowed = {row.experiment: lost for row in table.rows if row.experiment in ROWS and (lost := table.lost(row))}
    printed = ", ".join(f"{label(name)} {lost:.2f}" for name, lost in allowed.items())
    statement = Statement(
        f"accuracy-kept-{table.network}",
        f"Section 6, {table.title.partition(':')[0]}",
        "RVSM maintains very good accuracy (here: it loses at most as many points to the dense network as in the"
        " paper:"
        f" {printed}).",
    )

    def claim(experiments: Experiments) -> Verdict | Open:
        there = [name for name in allowed if name in experiments]
        if base not in experiments or not there:
            return statement.open(f"needs {base} and one of {', '.join(allowed)}")
        dense = experiments[base].accuracy
        gained = {name: Difference.of(experiments[name].accuracy, dense) for name in there}
        listed = "; ".join(f"{label(name)} {of} (paper: −{allowed[name]:.2f})" for name, of in gained.items())
        return statement.judged(
            at_least(allowed[name] + of.points for name, of in gained.items()),
            f"{label(base)} {percent(dense)}; {listed}{not_yet(allowed, experiments)}. The margin is in points."
            " The"
            f" training is not the paper's: {experiments[base].setting}.",
        )

    return claim
