"""What the pictures share: how a configuration is drawn, and small pictures side by side."""

from collections.abc import Sequence
from math import ceil
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from rvsm.report.configurations import Configuration, Series, mean_series

WIDE, NARROW = 8.5, 4.0
"""The width of pictures in inches, on a wide screen and on a phone."""
MOST = 12
"""More small pictures than this are not looked at."""

_LINES: tuple[Literal["-", "--", "-.", ":"], ...] = ("-", "--", "-.", ":")
_MARKERS = "osD^vPX*<>"
_COLOURS = 7


def colour(c: Configuration) -> str:
    """Return the colour of a configuration, as a place in the cycle, which differs in light and dark pictures."""
    return f"C{c.number % _COLOURS}"


def line(c: Configuration) -> Literal["-", "--", "-.", ":"]:
    """Return the style of its lines."""
    return _LINES[(c.number // _COLOURS) % len(_LINES)]


def marker(c: Configuration) -> str:
    """Return the form of its points."""
    return _MARKERS[c.number % len(_MARKERS)]


def label(text: str, length: int = 26) -> str:
    r"""Return a name for a picture: not too long, and no formula.

    >>> label("a$b"), label("_x"), label("a very long name of a configuration")
    ('a\\$b', ' _x', 'a very long na…nfiguration')
    """
    if len(text) > length:
        text = text[: length - 12] + "…" + text[-11:]
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text  # an underscore would keep it out of a legend


def omitted(count: int) -> str:
    """Return a sentence if there are more configurations than panels."""
    return f" Only the first {MOST} of {count} configurations are drawn." if count > MOST else ""


def sizes(
    count: int, *, height: float, width: float = 1.9, extra: float = 0.5
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the sizes of a picture of so many panels, on a wide screen and on a phone."""
    wide, narrow = ((total, ceil(count / _columns(count, total, width)) * height + extra) for total in (WIDE, NARROW))
    return wide, narrow


def panels(canvas: Canvas, count: int, *, width: float = 1.9, sharex: bool = True, sharey: bool = True) -> list[Axes]:
    """Return so many panels in as many columns as the canvas is wide enough for."""
    columns = _columns(count, canvas.get_figwidth(), width)
    rows = ceil(count / columns)
    grid = canvas.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
    flat = list(grid.flat)
    for unused in flat[count:]:
        unused.remove()
    for axes in flat[max(count - columns, 0) : count]:  # also above an empty place in the last row
        axes.tick_params(labelbottom=True)
    return flat[:count]


def lowest(drawn: Sequence[Axes], text: str) -> None:
    """Write the label of the horizontal axis under the lowest panel of each column."""
    by_column = {axes.get_subplotspec().colspan.start: axes for axes in drawn if axes.get_subplotspec()}  # type: ignore[union-attr]
    for axes in by_column.values():
        axes.set_xlabel(text)


def leftmost(drawn: Sequence[Axes], text: str) -> None:
    """Write the label of the vertical axis at the left of each row."""
    for axes in drawn:
        spec = axes.get_subplotspec()
        if spec is not None and spec.colspan.start == 0:
            axes.set_ylabel(text)


def curves(
    axes: Axes, series: Sequence[Series], *, colour: str, line: str, marker: str = "", factor: float = 1.0
) -> None:
    """Draw each run as a thin line, and their mean as a thick one, with a few markers if there is a form for them."""
    for one in series if len(series) > 1 else ():
        axes.plot([e for e, _ in one], [factor * v for _, v in one], line, color=colour, linewidth=0.7, alpha=0.45)
    mean = mean_series(series)
    axes.plot(
        [e for e, _ in mean],
        [factor * v for _, v in mean],
        line,
        color=colour,
        linewidth=1.8,
        marker=marker or ("o" if len(mean) == 1 else None),
        markevery=max(len(mean) // 5, 1),
        markersize=5,
    )


def shade(axes: Axes, phases: dict[str, tuple[float, float]]) -> None:
    """Mark the phases of a budget."""
    ink = mpl.rcParams["text.color"]
    for i, (name, (start, end)) in enumerate(phases.items()):
        axes.axvspan(start, end, color=ink, alpha=0.055 * i, linewidth=0)
        axes.text(
            (start + end) / 2, 0.02, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=8
        )


def _columns(count: int, total: float, width: float) -> int:
    """Return how many fit, or one less where that leaves fewer empty places in the last row."""
    most = int(total // width)
    if count <= most:
        return count
    return max(range(max(most - 1, 2), most + 1), key=lambda n: (-(-count % n), n)) if most > 1 else 1
