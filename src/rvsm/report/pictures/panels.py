"""What the pictures share: how a configuration is drawn, and small pictures side by side."""

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
"""More small pictures than this are not looked at."""

_LINES: tuple[Style, ...] = ("-", "--", "-.", ":")
_MARKERS = "osD^vPX*<>"
_COLOURS = 7


def colour(c: Configuration) -> str:
    """Return the colour of a configuration, as a place in the cycle, which differs in light and dark pictures."""
    return f"C{c.number % _COLOURS}"


def line(c: Configuration) -> Style:
    """Return the style of its lines."""
    return _LINES[(c.number // _COLOURS) % len(_LINES)]


def marker(c: Configuration) -> str:
    """Return the form of its points."""
    return _MARKERS[c.number % len(_MARKERS)]


def key(c: Configuration, *, lines: bool = True) -> Key:
    """Return how it is drawn where all configurations share a plot; readers can switch it off."""
    return Key(c.name, colour(c), line(c) if lines else "", marker(c), run=c.number)


W_AND_U = (Key("weights w", "C0"), Key("sparse network u", "C1", "--"))
"""The legend of plots that show both."""


def label(text: str, length: int = 26) -> str:
    r"""Return a name for a picture: not too long, and no formula.

    >>> label("a$b"), label("_x"), label("a very long name of a configuration")
    ('a\\$b', ' _x', 'a very long na…nfiguration')
    """
    if len(text) > length:
        text = text[: length - 12] + "…" + text[-11:]
    return unhidden(text.replace("$", r"\$"))


def unhidden(text: str) -> str:
    """Return a name that matplotlib takes for one: an underscore at the beginning would hide it."""
    return f" {text}" if text.startswith("_") else text


def title(axes: Axes, c: Configuration, *more: str, room: float = 0.4) -> None:
    """Write the name of a configuration over its panel, in as many lines as it takes, and make the panel its own.

    Args:
        axes: the panel.
        c: the configuration.
        more: lines to write below the name.
        room: what the numbers of the axis beside the panel take of its width, in inches.

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
    """Mark whole epochs."""
    for axes in drawn:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10], integer=True))


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
    """Write the label of the horizontal axis under the panels of the last row."""
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
    """Draw each run as a thin line, and their mean as a thick one, with a few markers if there is a form for them.

    With a name, the mean answers a reader who points at it; with a run, the lines disappear when it is switched off.
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
    """Make the vertical axis logarithmic, with a few ticks that are written as people write numbers."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    subs = (1.0, 2.0, 5.0) if high < 100 * low else (1.0, 3.0) if high < 3e3 * low else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axes.yaxis.set_minor_locator(NullLocator())


def power(value: float) -> str:
    """Return a number as people write it on a logarithmic axis.

    >>> power(0.02), power(1e-06), power(3e5)
    ('0.02', '10⁻⁶', '3·10⁵')
    """
    if 1e-3 <= abs(value) < 1e4 or not value:
        return f"{value:g}"
    digits, _, exponent = f"{value:.0e}".partition("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def positive(series: Series) -> Series:
    """Return what a logarithmic axis can show."""
    return [(epoch, value) for epoch, value in series if value > 0]


def when(shown: Sequence[Configuration]) -> str:
    """Return the beginning of a sentence about the last evaluation."""
    return "So far" if any(c.unfinished for c in shown) else "At the end"


def seeds(shown: Sequence[Configuration]) -> str:
    """Return a sentence that tells the lines of seeds from their mean, if there are any."""
    several = any(len(c.runs) > 1 for c in shown)
    return " Thin lines are single seeds, thick ones their mean." if several else ""


def _columns(count: int, total: float, width: float) -> int:
    """Return how many fit, or one less where that leaves fewer empty places in the last row."""
    most = int(total // width)
    if count <= most:
        return count
    return max(range(max(most - 1, 2), most + 1), key=lambda n: (-(-count % n), n)) if most > 1 else 1
