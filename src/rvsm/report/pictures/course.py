"""Accuracy, sparsity and gap in the course of training."""

from collections.abc import Callable, Sequence
from operator import attrgetter

from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from rvsm.pages import Figure
from rvsm.report.configurations import Configuration, Series
from rvsm.report.pictures.panels import (
    MOST,
    NARROW,
    WIDE,
    colour,
    curves,
    label,
    leftmost,
    line,
    lowest,
    marker,
    omitted,
    panels,
    shade,
    sizes,
)
from rvsm.report.reading import Look

_W, _U = attrgetter("w"), attrgetter("u")


def accuracy(found: Sequence[Configuration]) -> Figure | None:
    """Draw the accuracy of w and u against the epoch, a panel for each configuration."""
    validated = any(c.series(_W) for c in found)
    w: Callable[[Look], float | None] = _W if validated else attrgetter("accuracy")
    having = [c for c in found if c.series(w)]
    shown = having[:MOST]
    if not shown:
        return None
    sparse = any(c.series(_U) for c in shown)
    bottom, cut = _bottom([s for c in shown for s in (*c.series(w), *c.series(_U))])

    def draw(canvas: Canvas) -> None:
        drawn = panels(canvas, len(shown))
        for axes, c in zip(drawn, shown, strict=True):
            shade(axes, c.first.phases)
            curves(axes, c.series(w), colour="C0", line="-", factor=100)
            curves(axes, c.series(_U), colour="C1", line="--", factor=100)
            axes.set_title(label(c.name))
        drawn[0].set_ylim(100 * bottom, None)
        lowest(drawn, "epoch")
        leftmost(drawn, "accuracy, %")
        if sparse:
            lines = [Line2D([], [], color="C0"), Line2D([], [], color="C1", linestyle="--")]
            canvas.legend(lines, ["weights w", "sparse network u"], loc="outside lower center", ncols=2)

    size, phone = sizes(len(shown), height=2.2 if len(shown) > 2 else 3.2)
    told = _told(shown, validated=validated, sparse=sparse, cut=cut) + omitted(len(having))
    return Figure("accuracy-by-epoch", told, draw, size, phone)


def sparsity_and_gap(found: Sequence[Configuration]) -> Figure | None:
    """Draw the share of zeros and the distance between w and u against the epoch, all configurations together."""
    sparsity, gap = attrgetter("sparsity"), attrgetter("gap")
    shown = [c for c in found if c.series(sparsity) or c.series(gap)]
    if not shown:
        return None

    def draw(canvas: Canvas) -> None:
        left, right = panels(canvas, 2, width=3.4, sharey=False)
        for c in shown:
            gaps = [_positive(s) for s in c.series(gap)] if logarithmic else c.series(gap)
            for axes, series, factor in ((left, c.series(sparsity), 100.0), (right, gaps, 1.0)):
                form = marker(c) if len(shown) > 1 else ""
                curves(axes, series, colour=colour(c), line=line(c), marker=form, factor=factor)
        left.set(xlabel="epoch", ylabel="zeros among the sparsified weights, %", ylim=(-3, 103))
        right.set(xlabel="epoch", ylabel="gap ‖w − u‖")
        if logarithmic:
            right.set_yscale("log")
        else:
            right.set_ylim(bottom=0)
        if len(shown) == 1:
            for axes in (left, right):
                shade(axes, shown[0].first.phases)
            return
        lines = [Line2D([], [], color=colour(c), linestyle=line(c), marker=marker(c), markersize=5) for c in shown]
        columns = 4 if canvas.get_figwidth() > NARROW else 2
        canvas.legend(lines, [label(c.name, 20) for c in shown], loc="outside lower center", ncols=columns, fontsize=9)

    positive = [v for c in shown for s in c.series(gap) for _, v in s if v > 0]
    zero = any(v == 0 for c in shown for s in c.series(gap) for _, v in s)
    logarithmic = bool(positive) and max(positive) > 20 * min(positive)
    ends = {c.name: [s[-1][1] for s in c.series(gap)] for c in shown if c.series(gap)}
    largest = max(ends, key=lambda name: max(ends[name]), default=None)
    last = (
        ""
        if largest is None
        else f" {_when(shown)} the largest gap is {max(ends[largest]):.3g}{f', of {largest}' if len(ends) > 1 else ''}."
        if max(ends[largest]) > 0
        else f" {_when(shown)} w = u in all runs."
    )
    if logarithmic and zero:
        last += " The axis of the gap is logarithmic: where a line is missing, the gap is zero."
    rows = 0.25 * len(shown)
    return Figure(
        "sparsity-and-gap",
        "Left (above, on a phone): the share of zeros in u. Right: how far the weights w are from u. A gap that goes"
        " to zero means that nothing is lost when u is written in place of w; one that stays is what the last"
        f" threshold cuts away at once.{last}{_seeds(shown)}",
        draw,
        (WIDE, 3.4 + rows / 4),
        (NARROW, 5.4 + rows / 2),
    )


def _positive(series: Series) -> Series:
    return [(epoch, value) for epoch, value in series if value > 0]


def _bottom(series: Sequence[Series]) -> tuple[float, bool]:
    """Return where the axis shall begin: below all that comes after the first fifth, so that the end can be seen."""
    last = max(epoch for one in series for epoch, _ in one)
    late = [v for one in series for epoch, v in one if epoch > 0.2 * last]
    least, lowest_of_all = min(late), min(v for one in series for _, v in one)
    bottom = max(least - 0.15 * (max(late) - least) - 0.01, 0.0)
    return bottom, lowest_of_all < bottom


def _told(shown: Sequence[Configuration], *, validated: bool, sparse: bool, cut: bool) -> str:
    what = (
        "Accuracy on the validation images"
        if validated
        else "Accuracy on the training images, batch by batch, since none were held out for validation"
    )
    told = f"{what}, against the epoch."
    if sparse:
        told += (
            " The weights w (solid) are what the optimizer moves, the sparse network u (dashed) is what will be kept:"
            " where the lines lie together, thresholding costs nothing."
        )
        distances = {c.name: d for c in shown if (d := _distance(c)) is not None}
        if distances:
            name = max(distances, key=lambda key: abs(distances[key]))
            of = f"the largest difference, that of {name}, is" if len(distances) > 1 else "the difference is"
            told += f" {_when(shown)} {of} {abs(distances[name]) * 100:.1f} points"
            told += (
                "." if abs(distances[name]) < 5e-4 else ", u being " + ("worse." if distances[name] > 0 else "better.")
            )
    if any(c.first.phases for c in shown):
        told += (
            " Shaded are the phases of a run that was asked for a sparsity: it rises in the ramp, λ is fixed in the"
            " hold, and in the heal phase the zeros are fixed, so that w = u."
        )
    if cut:
        told += " The axis leaves out lower values of the first epochs."
    return told + _seeds(shown)


def _distance(c: Configuration) -> float | None:
    """Return by how much u is worse than w at the last look, as a mean over the runs."""
    found = [look.w - look.u for r in c.readings for look in r.looks[-1:] if look.w is not None and look.u is not None]
    return sum(found) / len(found) if found else None


def _when(shown: Sequence[Configuration]) -> str:
    return "So far" if any(c.unfinished for c in shown) else "At the end"


def _seeds(shown: Sequence[Configuration]) -> str:
    several = any(len(c.readings) > 1 for c in shown)
    return " Thin lines are single seeds, thick ones their mean." if several else ""
