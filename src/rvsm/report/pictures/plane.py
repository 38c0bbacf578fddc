"""Accuracy against sparsity, with every run as a point."""

from collections.abc import Sequence
from textwrap import wrap

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import Bbox

from rvsm.pages import Figure
from rvsm.pages.keys import gid
from rvsm.report.configurations import Configuration
from rvsm.report.pictures.panels import NARROW, WIDE, colour, key, label, marker, unhidden

_SPARSE = 0.95  # above this, the points would be crowded at the right of a linear axis


def plane(found: Sequence[Configuration]) -> Figure | None:
    """Draw the test accuracy of u against the fraction of zeros; None unless there are two finished runs."""
    shown = {c: [(o.sparsity, o.u.accuracy) for o in c.outcomes] for c in found if c.outcomes}
    runs = sum(map(len, shown.values()))
    if runs < 2:
        return None
    logarithmic = max(s for pairs in shown.values() for s, _ in pairs) > _SPARSE
    dense = next((c for c in shown if c.dense), None)

    def x(sparsity: float) -> float:
        return max(100 * (1 - sparsity), 1e-3) if logarithmic else 100 * sparsity

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        level = None if dense is None else 100 * dense.accuracy_u.mean
        if level is not None:
            axes.axhline(level, color=mpl.rcParams["text.color"], linewidth=0.8, linestyle=":")
        centres: list[tuple[float, float, Configuration]] = []
        bars: list[tuple[float, float, float]] = []
        for c, pairs in shown.items():
            s, a = c.sparsity, c.accuracy_u
            tint, form, spread, own = colour(c), marker(c), 100 * (a.std or 0.0), gid(c.number)
            for one, of in pairs if len(pairs) > 1 else ():
                axes.plot(x(one), 100 * of, form, color=tint, markersize=4, alpha=0.5, linewidth=0, gid=own)
                bars.append((x(one), 100 * of, 0.0))
            error = axes.errorbar(x(s.mean), 100 * a.mean, spread, color=tint, capsize=3, linewidth=1.2)
            for part in error.get_children():
                part.set_gid(own)
            said = f"{c.name}: {a.text(100)} % correct with {s.text(100)} % zeros"
            axes.plot(x(s.mean), 100 * a.mean, form, color=tint, markersize=8, label=unhidden(said), gid=own)
            bars.append((x(s.mean), 100 * a.mean, spread))
            centres.append((x(s.mean), 100 * a.mean, c))
        _axes(axes, logarithmic=logarithmic)
        _name(canvas, axes, centres, bars, level)

    several = any(len(pairs) > 1 for pairs in shown.values())
    return Figure(
        "accuracy-sparsity",
        "Test accuracy of the sparse network u against the fraction of its weights that are zero: up and to the right"
        f" is better. {'Small points are single runs; large points are' if several else 'Points are single runs.'}"
        f"{' means over the seeds, with one standard deviation up and down.' if several else ''}"
        f"{f' The dotted line is {dense.name}, which is dense.' if dense is not None else ''}"
        f"{' The axis of zeros is logarithmic in the weights that are left.' if logarithmic else ''}",
        draw,
        (WIDE, 4.4),
        (NARROW, 4.2),
        [key(c, lines=False) for c in shown],
    )


def _axes(axes: Axes, *, logarithmic: bool) -> None:
    axes.set(xlabel="zeros among the sparsified weights, %", ylabel="test accuracy of u, %")
    axes.margins(0.12, 0.14)
    axes.set_ylim(None, min(axes.get_ylim()[1], 100.5))
    if logarithmic:
        axes.set_xscale("log")
        axes.invert_xaxis()
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda left, _: f"{100 - left:.6g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        low, high = axes.get_xlim()
        axes.set_xlim(max(low, -6), min(high, 106))


def _name(
    canvas: Canvas,
    axes: Axes,
    points: Sequence[tuple[float, float, Configuration]],
    bars: Sequence[tuple[float, float, float]],
    level: float | None,
) -> None:
    """Write a name at each point if there is room; a name that would cover something is only in the legend."""
    texts = [
        axes.annotate(
            "\n".join(wrap(label(c.name, 72), 26)),
            (x, y),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=9,
            linespacing=1.0,
            gid=gid(c.number),
        )
        for x, y, c in points
    ]
    for text in texts:
        text.set_in_layout(False)  # otherwise the axes would shrink for names that are not yet placed
    engine = canvas.get_layout_engine()
    if engine is not None:
        engine.execute(canvas)  # places the axes, after which sizes are known
    canvas.set_layout_engine("none")
    unit = canvas.dpi / 72
    frame = axes.get_window_extent()
    taken: list[Bbox] = []
    for x, y, spread in bars:
        (x0, y0), (x1, y1) = axes.transData.transform([(x, y - spread), (x, y + spread)])
        taken.append(Bbox.from_extents(x0, y0, x1, y1).padded(5 * unit))
    if level is not None:
        line = axes.transData.transform((0, level))[1]
        taken.append(Bbox.from_extents(frame.x0, line - unit, frame.x1, line + unit))
    for text, (x, y, _) in zip(texts, points, strict=True):
        size = text.get_window_extent()
        left, bottom = axes.transData.transform((x, y))
        at = Bbox.from_bounds(left, bottom, size.width, size.height)
        places = {
            offset: at.translated(unit * offset[0], unit * offset[1])
            for offset in _places(size.width / unit, size.height / unit)
        }
        free = [
            offset
            for offset, box in places.items()
            if _outside(box, frame) < 4 * unit and not any(_overlap(box, other) for other in taken)
        ]
        if not free:
            text.remove()
            continue
        text.set_position(free[0])
        text.set_verticalalignment("bottom")
        taken.append(places[free[0]])


def _places(width: float, height: float) -> list[tuple[float, float]]:
    """Return offsets of the lower left corner of a name in points, preferred ones first."""
    sides = [
        (9.0, -height / 2),
        (-width - 9, -height / 2),
        *((dx, dy) for dy in (8.0, -8 - height) for dx in (-width / 2, 2.0, -width - 2)),
    ]
    return [*sides, *((dx, dy + step * height) for step in (1, -1, 2, -2, 3, -3) for dx, dy in sides)]


def _outside(box: Bbox, frame: Bbox) -> float:
    beyond = (frame.x0 - box.x0, frame.y0 - box.y0, box.x1 - frame.x1, box.y1 - frame.y1)
    return float(sum(max(distance, 0.0) for distance in beyond))


def _overlap(one: Bbox, other: Bbox) -> bool:
    """Return whether two boxes have more than an edge in common."""
    shared = Bbox.intersection(one, other)
    return shared is not None and shared.width > 0 and shared.height > 0
