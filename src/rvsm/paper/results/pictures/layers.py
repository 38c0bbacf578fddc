"""The final density of each layer, with the rows of a table side by side."""

from math import sqrt

from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from rvsm.pages import Figure
from rvsm.paper.results.collections import Collection
from rvsm.paper.results.printed import SHORT, PaperTable
from rvsm.report.pictures.panels import NARROW, WIDE, label


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
        for column, found in enumerate(shown.values()):
            for row, name in enumerate(names):
                if name not in found:
                    corner = column - 0.5, row - 0.5
                    axes.add_patch(
                        Rectangle(corner, 1, 1, facecolor="white", edgecolor="#8c959f", hatch="///", linewidth=0)
                    )
                else:
                    dark = _shade(found[name]) > 0.6
                    axes.text(
                        *(column, row, f"{100 * found[name]:.3g}"),
                        ha="center",
                        va="center",
                        fontsize=6.5 if small else 8.5,
                        color="white" if dark else "#1f2328",
                    )
        size = 6.5 if small else 8.5
        axes.set_xticks(range(len(shown)), list(shown), fontsize=size, rotation=45 if small else 0)
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
        f" {_said(min(every))}, the densest {_said(max(every))}. {SHORT}"
        f"{' The method does not sparsify hatched layers.' if blank else ''}"
        f"{' Mean over the seeds.' if several else ''}",
        draw,
        (WIDE, height),
        (NARROW, height + 0.5),
    )


def _shade(density: float | None) -> float:
    """Return how dark a cell is: the square root makes the sparsest layers distinguishable."""
    return 0.85 * sqrt(density or 0.0)


def _said(one: tuple[float, str]) -> str:
    return f"{one[1]} with {100 * one[0]:.3g} %"
