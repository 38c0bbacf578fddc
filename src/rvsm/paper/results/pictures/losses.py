"""The loss of w and of u during training."""

from operator import attrgetter

from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from rvsm.pages import Figure
from rvsm.paper.results.collections import Collection
from rvsm.paper.results.printed import UNSCALED, PaperTable
from rvsm.report.configurations import Series
from rvsm.report.pictures.panels import curves, leftmost, lowest, panels, positive, sizes

_LOSS_W, _LOSS_U = attrgetter("loss_w"), attrgetter("loss_u")


def losses(table: PaperTable, collection: Collection) -> Figure | None:
    """Draw the validation loss of w and u against the epoch, one panel per sparse row of a table.

    The rows of the authors' scripts are left out: w is overwritten by u there, so the losses are equal by
    construction, apart from batch norm.
    """
    ours = collection.experiments
    sparse = {row.short: e for row in table.rows if (e := ours.get(row.experiment)) and not e.dense}
    there = {name: e for name, e in sparse.items() if not e.first.method.endswith("-published")}
    shown = {name: e for name, e in there.items() if _positive(e.series(_LOSS_W)) and _positive(e.series(_LOSS_U))}
    if not shown:
        return None

    def draw(canvas: Canvas) -> None:
        drawn = panels(canvas, len(shown), width=2.1)
        for axes, (name, e) in zip(drawn, shown.items(), strict=True):
            curves(axes, _positive(e.series(_LOSS_W)), colour="C0", line="-")
            curves(axes, _positive(e.series(_LOSS_U)), colour="C1", line="--")
            axes.set_title(name)
        drawn[0].set_yscale("log")
        drawn[0].yaxis.set_major_locator(FixedLocator(_ticks(*drawn[0].get_ylim())))
        drawn[0].yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:g}"))
        drawn[0].yaxis.set_minor_locator(NullLocator())
        drawn[0].xaxis.set_major_locator(MaxNLocator(5, integer=True))
        lowest(drawn, "epoch")
        leftmost(drawn, "validation loss")
        lines = [Line2D([], [], color="C0"), Line2D([], [], color="C1", linestyle="--")]
        canvas.legend(lines, ["weights w", "sparse network u"], loc="outside lower center", ncols=2)

    size, phone = sizes(len(shown), height=2.2, width=2.1)
    several = any(len(e.runs) > 1 for e in shown.values())
    left_out = " The authors' scripts, in which u overwrites w after each epoch, are not drawn."
    return Figure(
        f"{collection.name}-losses-{table.network}",
        f"{table.called}: the validation loss of the weights w (solid) and of the sparse network u"
        " (dashed, batch norm re-estimated), by epoch, on a logarithmic axis. The paper says that the two"
        f" behave very similarly. {UNSCALED}{left_out * (len(there) < len(sparse))}"
        f"{' Thin lines are single seeds; thick lines are their mean.' if several else ''}",
        draw,
        size,
        phone,
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis: fewer per decade if there are more decades."""
    ratio = high / low
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if ratio < 8 else (1.0, 2.0, 5.0) if ratio < 40 else (1.0, 3.0)
    return [step * 10.0**power for power in range(-6, 7) for step in steps]


def _positive(series: list[Series]) -> list[Series]:
    """Return the part of each run that a logarithmic axis can show."""
    return [kept for one in series if (kept := positive(one))]
