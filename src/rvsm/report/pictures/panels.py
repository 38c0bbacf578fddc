"""Common parts of the pictures: the style of each configuration, and panels side by side."""

from collections.abc import Sequence
from math import ceil
from textwrap import wrap

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from rvsm.pages import Key
from rvsm.pages.keys import Style, gid
from rvsm.report.configurations import Configuration, Series, mean_series

WIDE, NARROW = 8.5, 4.0
"""The width of pictures in inches, on a wide screen and on a phone."""
MOST = 12
"""The largest number of panels that are still useful."""

_LINES: tuple[Style, ...] = ("-", "--", "-.", ":")
_MARKERS = "osD^vPX*<>"
_COLOURS = 7


def colour(c: Configuration) -> str:
    """Return the colour of a configuration, as a position in the colour cycle."""
    return f"C{c.number % _COLOURS}"


def line(c: Configuration) -> Style:
    """Return the style of its lines."""
    return _LINES[(c.number // _COLOURS) % len(_LINES)]


def marker(c: Configuration) -> str:
    """Return the shape of its points."""
    return _MARKERS[c.number % len(_MARKERS)]


def key(c: Configuration, *, lines: bool = True) -> Key:
    """Return its legend entry for plots with several configurations; readers can hide it."""
    return Key(c.name, colour(c), line(c) if lines else "", marker(c), run=c.number)


W_AND_U = (Key("weights w", "C0"), Key("sparse network u", "C1", "--"))
"""The legend of plots that show both w and u."""


def label(text: str, length: int = 26) -> str:
    r"""Return a name for a picture: shortened, and not interpreted as a formula.

    >>> label("a$b"), label("_x"), label("a very long name of a configuration")
    ('a\\$b', ' _x', 'a very long na…nfiguration')
    """
    if len(text) > length:
        text = text[: length - 12] + "…" + text[-11:]
    return unhidden(text.replace("$", r"\$"))


def unhidden(text: str) -> str:
    """Return a name that matplotlib shows: it hides names that begin with an underscore."""
    return f" {text}" if text.startswith("_") else text


def title(axes: Axes, c: Configuration, *more: str, room: float = 0.4) -> None:
    """Write the name of a configuration, and more lines, above its panel, and assign the panel to it.

    ``room`` is the width in inches that the numbers of the axis take.
    """
    spec, canvas = axes.get_subplotspec(), axes.get_figure(root=True)
    assert spec is not None
    assert canvas is not None
    letters = int(72 * (canvas.get_figwidth() / spec.get_gridspec().ncols - room) / 5.6)
    lines = [line for text in (label(c.name, 72), *more) for line in wrap(text, max(letters, 10))]
    axes.set_title("\n".join(lines), fontsize=9.5)
    axes.set_label(c.name)
    axes.set_gid(gid(c.number))


def epochs(drawn: Sequence[Axes]) -> None:
    """Put the ticks at integer epochs."""
    for axes in drawn:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10], integer=True))


def omitted(count: int) -> str:
    """Return a sentence if there are more configurations than panels."""
    return f" Only the first {MOST} of {count} configurations are drawn." if count > MOST else ""


def sizes(
    count: int, *, height: float, width: float = 1.9, extra: float = 0.5
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the sizes of a picture with this many panels, on a wide screen and on a phone."""
    wide, narrow = ((total, ceil(count / _columns(count, total, width)) * height + extra) for total in (WIDE, NARROW))
    return wide, narrow


def panels(canvas: Canvas, count: int, *, width: float = 1.9, sharex: bool = True, sharey: bool = True) -> list[Axes]:
    """Return this many panels, in as many columns as fit on the canvas."""
    columns = _columns(count, canvas.get_figwidth(), width)
    rows = ceil(count / columns)
    grid = canvas.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
    flat = list(grid.flat)
    for unused in flat[count:]:
        unused.remove()
    for axes in flat[max(count - columns, 0) : count]:  # also above an empty position in the last row
        axes.tick_params(labelbottom=True)
    return flat[:count]


def lowest(drawn: Sequence[Axes], text: str) -> None:
    """Write the label of the horizontal axis below the panels of the last row."""
    specs = {axes: spec for axes in drawn if (spec := axes.get_subplotspec()) is not None}
    last = max(spec.rowspan.start for spec in specs.values())
    for axes, spec in specs.items():
        if spec.rowspan.start == last:
            axes.set_xlabel(text)


def leftmost(drawn: Sequence[Axes], text: str) -> None:
    """Write the label of the vertical axis at the left of each row."""
    for axes in drawn:
        spec = axes.get_subplotspec()
        if spec is not None and spec.colspan.start == 0:
            axes.set_ylabel(text)


def curves(
    axes: Axes,
    series: Sequence[Series],
    *,
    colour: str,
    line: str,
    marker: str = "",
    factor: float = 1.0,
    name: str | None = None,
    run: int | None = None,
) -> None:
    """Draw each run as a thin line, and their mean as a thick line, with a few markers if a shape is given.

    With a name, the mean shows its numbers when a reader points at it. With a run, the lines are hidden with the run.
    """
    belongs = None if run is None else gid(run)
    for one in series if len(series) > 1 else ():
        x, y = [e for e, _ in one], [factor * v for _, v in one]
        axes.plot(x, y, line, color=colour, linewidth=0.7, alpha=0.45, gid=belongs)
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
        label=None if name is None else unhidden(name),
        gid=belongs,
    )


def shade(axes: Axes, phases: dict[str, tuple[float, float]]) -> None:
    """Mark the phases of a budget."""
    ink = mpl.rcParams["text.color"]
    for i, (name, (start, end)) in enumerate(phases.items()):
        axes.axvspan(start, end, color=ink, alpha=0.055 * i, linewidth=0)
        axes.text(
            (start + end) / 2, 0.02, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=8
        )


def decades(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with a few ticks in usual notation."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    subs = (1.0, 2.0, 5.0) if high < 100 * low else (1.0, 3.0) if high < 3e3 * low else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axes.yaxis.set_minor_locator(NullLocator())


def power(value: float) -> str:
    """Return a number in the usual notation for a logarithmic axis.

    >>> power(0.02), power(1e-06), power(3e5)
    ('0.02', '10⁻⁶', '3·10⁵')
    """
    if 1e-3 <= abs(value) < 1e4 or not value:
        return f"{value:g}"
    digits, _, exponent = f"{value:.0e}".partition("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def positive(series: Series) -> Series:
    """Return the values that a logarithmic axis can show."""
    return [(epoch, value) for epoch, value in series if value > 0]


def when(shown: Sequence[Configuration]) -> str:
    """Return the beginning of a sentence about the last evaluation."""
    return "So far" if any(c.unfinished for c in shown) else "At the end"


def seeds(shown: Sequence[Configuration]) -> str:
    """Return a sentence that explains thin and thick lines, if there are several seeds."""
    several = any(len(c.runs) > 1 for c in shown)
    return " Thin lines are single seeds; thick lines are their mean." if several else ""


def _columns(count: int, total: float, width: float) -> int:
    """Return how many columns fit, or one less if that leaves fewer empty positions in the last row."""
    most = int(total // width)
    if count <= most:
        return count
    return max(range(max(most - 1, 2), most + 1), key=lambda n: (-(-count % n), n)) if most > 1 else 1
