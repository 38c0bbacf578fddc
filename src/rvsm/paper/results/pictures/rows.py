"""The rows of a table: their losses of w and u during training, and the final density of each layer."""

from math import sqrt
from operator import attrgetter

from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from rvsm.pages import Figure
from rvsm.paper.results.collections import Collection
from rvsm.paper.results.printed import SHORT, UNSCALED, PaperTable
from rvsm.report.configurations import Series
from rvsm.report.pictures.panels import NARROW, WIDE, curves, label, leftmost, lowest, panels, positive, sizes

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


def layers(table: PaperTable, collection: Collection) -> Figure | None:
    """Draw the fraction of weights left in each layer, one column per sparse row of a table."""
    ours = collection.experiments
    there = {row.short: e for row in table.rows if (e := ours.get(row.experiment)) and not e.dense}
    shown = {name: found for name, e in there.items() if (found := e.densities)}
    if not shown:
        return None
    names = list(dict.fromkeys(layer for found in shown.values() for layer in found))

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        shades = [[_shade(found.get(name)) for found in shown.values()] for name in names]
        axes.imshow(shades, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
        small = canvas.get_figwidth() <= NARROW
        font = 6.5 if small else 8.5
        for column, found in enumerate(shown.values()):
            for row, name in enumerate(names):
                if name not in found:
                    corner = column - 0.5, row - 0.5
                    axes.add_patch(
                        Rectangle(corner, 1, 1, facecolor="white", edgecolor="#8c959f", hatch="///", linewidth=0)
                    )
                else:
                    colour = "white" if _shade(found[name]) > 0.6 else "#1f2328"
                    text = f"{100 * found[name]:.3g}"
                    axes.text(column, row, text, ha="center", va="center", fontsize=font, color=colour)
        axes.set_xticks(range(len(shown)), list(shown), fontsize=font, rotation=45 if small else 0)
        axes.set_yticks(range(len(names)), [label(name, 22) for name in names], fontsize=8)
        axes.xaxis.tick_top()
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)

    every = [(value, f"{layer} of {name}") for name, found in shown.items() for layer, value in found.items()]
    blank = any(name not in found for found in shown.values() for name in names)
    several = any(len(e.runs) > 1 for e in there.values())
    height = 0.7 + 0.21 * len(names)
    return Figure(
        f"{collection.name}-layers-{table.network}",
        f"{table.called}: the fraction of weights left in each layer, in percent, from the input at the"
        f" top to the output at the bottom. Darker cells keep more weights (square-root scale). The sparsest is"
        f" {_layer_density(min(every))}, the densest {_layer_density(max(every))}. {SHORT}"
        f"{' The method does not sparsify hatched layers.' if blank else ''}"
        f"{' Mean over the seeds.' if several else ''}",
        draw,
        (WIDE, height),
        (NARROW, height + 0.5),
    )


def _shade(density: float | None) -> float:
    """Return how dark a cell is: the square root makes the sparsest layers distinguishable."""
    return 0.85 * sqrt(density or 0.0)


def _layer_density(one: tuple[float, str]) -> str:
    return f"{one[1]} with {100 * one[0]:.3g} %"
