"""The numbers behind a plot, shown when a reader points at it; taken from the artists that have a label."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch

from rvsm.pages.keys import run_of
from rvsm.pages.style import css

_MOST = 1000  # points of a line; single points of a longer line are hard to hit, and the page would be large


def readings(canvas: Canvas) -> list[dict[str, Any]]:
    """Return a table for each panel with a labelled line or stairs, ready for JSON.

    ``box`` is the position of the panel, in points from the upper left corner of the picture. ``x`` and ``y`` are the
    lower end, the upper end, and whether the axis is logarithmic. Each of the ``series`` has a name, a colour and its
    numbers.
    """
    found = []
    for axes in canvas.axes:
        series = [one for one in map(_line, axes.lines) if one] + [one for one in map(_stairs, axes.patches) if one]
        if series:
            found.append({**_frame(canvas, axes), "series": series})
    return found


def _frame(canvas: Canvas, axes: Axes) -> dict[str, Any]:
    width, height = 72 * canvas.get_size_inches()
    at = axes.get_position()
    return {
        "box": _numbers((at.x0 * width, (1 - at.y1) * height, at.x1 * width, (1 - at.y0) * height)),
        "x": [*_numbers(axes.get_xlim()), axes.get_xscale() == "log"],
        "y": [*_numbers(axes.get_ylim()), axes.get_yscale() == "log"],
        "title": str(axes.get_label()) or axes.get_title(),
        "across": axes.get_xlabel() or _label_of_others(canvas, axes),
    }


def _label_of_others(canvas: Canvas, axes: Axes) -> str:
    """Return the label of a panel below, which also applies to this one."""
    shared = axes.get_shared_x_axes()
    return next((other.get_xlabel() for other in canvas.axes if shared.joined(axes, other) and other.get_xlabel()), "")


def _line(line: Line2D) -> dict[str, Any] | None:
    if line.axes is None or line.get_transform() is not line.axes.transData:  # a level across the panel, for instance
        return None
    x, y = (np.asarray(values, dtype=float) for values in (line.get_xdata(), line.get_ydata()))
    if len(x) != len(y) or np.any(np.diff(x) < 0):  # a path in a plane, with no single value for a position on the axis
        return None
    return _series(line, to_hex(line.get_color()), x, y)


def _stairs(patch: Any) -> dict[str, Any] | None:
    if not isinstance(patch, StepPatch):
        return None
    values, ends, _ = patch.get_data()
    edges, logarithmic = np.asarray(ends), patch.axes is not None and patch.axes.get_xscale() == "log"
    middles = np.sqrt(edges[1:] * edges[:-1]) if logarithmic else (edges[1:] + edges[:-1]) / 2
    colour = patch.get_facecolor() if patch.get_fill() else patch.get_edgecolor()
    return _series(patch, to_hex(colour), middles, np.asarray(values, dtype=float))


def _series(artist: Line2D | StepPatch, colour: str, x: Any, y: Any) -> dict[str, Any] | None:
    name = str(artist.get_label())
    known = np.isfinite(x) & np.isfinite(y)
    if name.startswith("_") or not known.any() or len(x) > _MOST:  # matplotlib names artists without a label "_…"
        return None
    return {
        "name": name.strip(),
        "run": run_of(artist.get_gid()) or run_of(artist.axes.get_gid() if artist.axes else None),
        "colour": css(colour),
        "x": _numbers(x[known]),
        "y": _numbers(y[known]),
    }


def _numbers(values: Iterable[float]) -> list[float]:
    """Return numbers rounded to five digits; integers have no decimal point, which is shorter."""
    rounded = [float(f"{value:.5g}") for value in values]
    return [int(value) if value.is_integer() and abs(value) < 1e15 else value for value in rounded]
