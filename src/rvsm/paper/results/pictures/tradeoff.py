"""Accuracy against zeros, ours and the paper's, each relative to its own dense network."""

from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from rvsm.pages import Figure
from rvsm.paper.results.chance import CHANCE, difference
from rvsm.paper.results.collections import Collection
from rvsm.paper.results.printed import TABLES, PaperTable, PrintedRow
from rvsm.report.pictures.panels import NARROW, WIDE, panels

_COLOURS = {"admm": "C0", "magnitude": "C6", "tl1": "C1", "l1": "C0", "l0": "C2"}
"""By the first of these words that is in the experiment's name."""
_LOWEST = -10.0
"""In points: a network that lost more has broken down, and would squeeze the others together."""
_FORMS = {"published": "^", "unscaled": "D", "937": "s", "869": "s"}
"""By the last word of the experiment's name; others are circles."""


@dataclass(frozen=True)
class _Point:
    """A row: zeros in percent, and accuracy relative to the dense network in points; ours, its spread, and the paper's.

    The spread is None unless both the row and the dense network were run with several seeds.
    """

    row: PrintedRow
    ours: tuple[float, float]
    spread: float | None
    seeds: int
    paper: tuple[float, float] | None

    @property
    def broken(self) -> bool:
        return self.ours[1] < _LOWEST

    @property
    def mark(self) -> tuple[str, str]:
        return mark(self.row.experiment)


def mark(experiment: str) -> tuple[str, str]:
    """Return the colour and shape of an experiment's mark, which are unique within a table.

    >>> mark("vgg16-l0"), mark("vgg16-l0-published")
    (('C2', 'o'), ('C2', '^'))
    """
    words = experiment.split("-")
    colour = next((tint for word, tint in _COLOURS.items() if word in words), "C5")
    return colour, _FORMS.get(words[-1], "o")


def tradeoff(collection: Collection) -> Figure | None:
    """Draw the accuracy cost of sparsity; None unless a dense network and a sparse one were run."""
    shown = {table: points for table in TABLES if (points := _points(table, collection))}
    if not shown:
        return None

    def draw(canvas: Canvas) -> None:
        drawn = panels(canvas, len(shown), width=3.4, sharey=False)
        for axes, (table, points) in zip(drawn, shown.items(), strict=True):
            _draw(axes, table, points)

    rows = max(map(len, shown.values()))
    broken = any(point.broken for points in shown.values() for point in points)
    seeds = [point.seeds for points in shown.values() for point in points]
    return Figure(
        f"{collection.name}-accuracy-zeros",
        "The accuracy cost of zeros: test accuracy of u minus that of the dense network of the same table, against"
        " the fraction of zeros. Ours are counted over the sparsified weights, the paper's over all weights. Filled"
        " marks are ours. Hollow marks are the paper's, in the colour of the rows that repeat them. The trainings"
        " differ in length and width, so only the shape can be compared."
        f"{' Networks that lose more than ten points are at the lower edge, with their loss.' if broken else ''}"
        f"{' Bars are one standard deviation over the seeds.' if max(seeds) > 1 else ''}"
        f"{f' For marks with one seed, differences of up to {CHANCE} may be chance.' if min(seeds) == 1 else ''}",
        draw,
        (WIDE, 3.8 + 0.2 * rows),
        (NARROW, (3.6 + 0.2 * rows) * len(shown)),
    )


def _points(table: PaperTable, collection: Collection) -> list[_Point]:
    base = collection.experiments.get(table.base.experiment)
    if base is None:
        return []
    points = []
    for row in table.rows[1:]:
        if (e := collection.experiments.get(row.experiment)) is None:
            continue
        apart, lost = difference(e.accuracy_u, base.accuracy_u), table.lost(row)
        paper = None if row.printed is None or lost is None else (row.printed.sparsity, -lost)
        seeds = min(len(e.runs), len(base.runs))
        points.append(_Point(row, (100 * e.sparsity.mean, apart.points), apart.spread, seeds, paper))
    return points


def _draw(axes: Axes, table: PaperTable, points: list[_Point]) -> None:
    ink = mpl.rcParams["text.color"]
    axes.axhline(0, color=ink, linewidth=0.8, linestyle=":")
    hollow: dict[str, Any] = {"markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.8, "linewidth": 0}
    for point in points:
        colour, form = point.mark
        if not point.broken:
            axes.errorbar(*point.ours, yerr=point.spread, fmt=form, color=colour, markersize=7, capsize=3, alpha=0.9)
        if point.paper is not None:
            axes.plot(*point.paper, "o", color=colour, **hollow)
    handles = [
        *(Line2D([], [], color=p.mark[0], marker=p.mark[1], linewidth=0, label=p.row.label) for p in points),
        Line2D([], [], color=ink, marker="o", label="as the paper prints it", **hollow),
    ]
    axes.set(title=table.called, xlabel="zeros, %", xlim=(-4, 104))
    axes.set_ylabel("accuracy relative to dense, points")
    axes.margins(y=0.15)
    _draw_broken(axes, [point for point in points if point.broken])
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.19), fontsize=8.5)


def _draw_broken(axes: Axes, points: list[_Point]) -> None:
    """Stack networks that lost too much for the axis at its lower edge, each with its loss."""
    low, high = axes.get_ylim()
    step = 0.09 * (high - low)
    axes.set_ylim(low - step * len(points), high)
    for place, point in enumerate(sorted(points, key=lambda point: -point.ours[1])):
        colour, form = point.mark
        x, y = point.ours[0], low - step * (place + 0.5)
        axes.plot(x, y, form, color=colour, markersize=7, alpha=0.9)
        lost = f"{point.ours[1]:.1f}".replace("-", "−")
        axes.annotate(f"{lost} ↓", (x, y), (-8, 0), textcoords="offset points", ha="right", va="center", fontsize=8.5)
