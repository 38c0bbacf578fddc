"""The Lagrangian, where its values can be compared."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rvsm.pages import Figure
from rvsm.records import Record
from rvsm.report.configurations import Configuration, Series, mean_series
from rvsm.report.pictures import panels as plot


def lagrangian(found: Sequence[Configuration]) -> Figure | None:
    """Draw the Lagrangian of RVSM against the epoch, if at least three values have the same λ."""
    every = {c: [s for r in c.runs if len(s := _comparable(r)) > 2] for c in found if c.first.method == "rvsm"}
    of = {c: series for c, series in every.items() if series}
    shown = dict(list(of.items())[: plot.MOST])
    if not shown:
        return None

    def draw(canvas: Canvas) -> None:
        drawn = plot.panels(canvas, len(shown), sharex=False, sharey=False)
        for axes, (c, series) in zip(drawn, shown.items(), strict=True):
            plot.curves(axes, series, colour=plot.colour(c), line=plot.line(c), name="ℒ(w, u)")
            plot.title(axes, c)
            _axis(axes)
        plot.epochs(drawn)
        plot.lowest(drawn, "epoch")
        plot.leftmost(drawn, "ℒ(w, u)")

    intervals = [pair for series in shown.values() for pair in pairwise(mean_series(series))]
    rising, steps = sum(after > before for (_, before), (_, after) in intervals), len(intervals)
    fell = (
        f"It falls in each of the {steps} intervals between two evaluations"
        if not rising
        else f"It rises in {rising} of the {steps} intervals between two evaluations"
    )
    size, phone = plot.sizes(len(shown), height=2.1 if len(shown) > 2 else 2.8, extra=0.2)
    return Figure(
        "lagrangian",
        "The Lagrangian ℒ = f(w) + λP(u) + (β/2)‖w − u‖² of RVSM while λ is fixed. Its values can be compared only"
        " then, and not between panels. The theorem says that it falls with the full gradient; here, f is the mean"
        f" loss over the batches of an epoch. {fell}.{plot.omitted(len(of))}",
        draw,
        size,
        phone,
    )


def _axis(axes: Axes) -> None:
    """Mark round values, and show small changes as flat: the axis spans at least a fiftieth of the value."""
    low, high = axes.get_ylim()
    least = 0.02 * max(abs(low), abs(high))
    if high - low < least:
        middle = (low + high) / 2
        axes.set_ylim(middle - least / 2, middle + least / 2)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}".replace("-", "−")))


def _comparable(run: Record) -> Series:
    """Return the Lagrangian at the evaluations that have the λ of the end of the hold phase."""
    hold = run.phases.get("hold")
    if run.phases and hold is None:
        return []
    held = [e for e in run.evaluations if e.lam and (hold is None or hold[0] < e.epoch <= hold[1])]
    return [(e.epoch, e.lagrangian) for e in held if e.lam == held[-1].lam and e.lagrangian is not None]
