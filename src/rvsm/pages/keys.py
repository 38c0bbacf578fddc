"""The legend of a plot: text below it in a page, where a reader can hide runs, and part of the picture in a file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

import numpy as np
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.figure import Figure as Canvas
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Patch

from rvsm.pages.style import css

_RUN = "run-"
Style = Literal["-", "--", "-.", ":"]
"""How a line is drawn."""
_DASHES: dict[str, str] = {"-": "", "--": "5 2.5", "-.": "6 2 1.5 2", ":": "1.5 2"}
_LETTER, _SWATCH, _ROW = 0.082, 0.55, 0.23  # inches: a letter, the swatch before a name, a line of the legend


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    name: str
    colour: str  # a colour, or a position in the cycle such as "C0"
    line: Style | Literal[""] = "-"  # the style of its line; "" if it has none
    marker: str = ""  # the shape of its points; "" if it has none
    filled: bool = False  # whether it is an area
    run: int | None = None  # the number of its run, which a reader can then hide

    @property
    def swatch(self) -> Markup:
        """A small drawing of the entry."""
        colour, parts = css(self.colour), ""
        if self.filled:
            parts += f'<rect x="4" y="2" width="18" height="8" fill="{colour}" fill-opacity=".55"/>'
        elif self.line:
            dashes = _DASHES[self.line]
            parts += f'<path d="M1 6H25" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        if self.marker:
            parts += f'<path d="{_outline(self.marker)}" fill="{colour}"/>'
        drawn = f'<svg class="swatch" viewBox="0 0 26 12" width="26" height="12" aria-hidden="true">{parts}</svg>'
        return Markup(drawn)  # made of numbers and colours only

    def handle(self) -> Artist:
        """Return the artist for the entry in a drawn legend."""
        if self.filled:
            return Patch(color=self.colour, alpha=0.55)
        return Line2D([], [], color=self.colour, linestyle=self.line or "none", marker=self.marker, markersize=5)


def gid(run: int) -> str:
    """Return the gid of an artist that belongs to a run and is hidden with it.

    >>> gid(3), run_of(gid(3)), run_of("axes_1")
    ('run-3', '3', None)
    """
    return f"{_RUN}{run}"


def run_of(gid: str | None) -> str | None:
    """Return the number of the run that an artist belongs to, if there is one."""
    return gid.removeprefix(_RUN) if gid and gid.startswith(_RUN) else None


def columns(keys: Sequence[Key], width: float) -> int:
    """Return the number of columns in which the names fit into a drawn legend."""
    longest = max(max(map(len, _lines(key))) for key in keys)
    return max(min(len(keys), int(width / (_LETTER * longest + _SWATCH))), 1)


def height(keys: Sequence[Key], width: float) -> float:
    """Return the height of a drawn legend in inches."""
    if not keys:
        return 0.0
    rows = -(-len(keys) // columns(keys, width))
    return _ROW * rows * max(len(_lines(key)) for key in keys)


@contextmanager
def drawn(canvas: Canvas, keys: Sequence[Key]) -> Iterator[None]:
    """Draw a legend below everything else, for which the canvas grows, and remove it again; its layout is final."""
    if not keys:
        yield
        return
    width, before = canvas.get_size_inches()
    after = before + height(keys, width)
    with _grown(canvas, before, after):
        made = _legend(canvas, keys)
        try:
            yield
        finally:
            made.remove()


@contextmanager
def _grown(canvas: Canvas, before: float, after: float) -> Iterator[None]:
    """Add height at the bottom: what is there keeps its size and its distance from the top."""
    panels = [(axes, axes.get_position(original=True)) for axes in canvas.axes]
    labels = [(text, text.get_position()) for text in canvas.texts if text.get_transform() == canvas.transSubfigure]
    scale, bottom = before / after, 1 - before / after
    canvas.set_figheight(after)
    for axes, box in panels:
        axes.set_position((box.x0, bottom + scale * box.y0, box.width, scale * box.height))
    for text, (x, y) in labels:
        text.set_position((x, bottom + scale * y))
    try:
        yield
    finally:
        canvas.set_figheight(before)
        for axes, box in panels:
            axes.set_position(box)
        for text, place in labels:
            text.set_position(place)


def _legend(canvas: Canvas, keys: Sequence[Key]) -> Legend:
    names = ["\n".join(_lines(key)).replace("$", r"\$") for key in keys]
    shown = [f" {name}" if name.startswith("_") else name for name in names]  # an underscore would hide it
    ncols = columns(keys, canvas.get_figwidth())
    return canvas.legend([key.handle() for key in keys], shown, loc="lower center", ncols=ncols, fontsize=9)


def _lines(key: Key) -> list[str]:
    """Return a name in lines; one that would fill the picture is shortened."""
    return wrap(key.name if len(key.name) <= 160 else f"{key.name[:158]} …", 60) or [""]


def _outline(marker: str) -> str:
    """Return the shape of a marker as an SVG path around the centre of a swatch."""
    style = MarkerStyle(marker)
    polygons = style.get_path().transformed(style.get_transform()).to_polygons()
    outlines = [[f"{13 + 9 * x:.1f} {6 - 9 * y:.1f}" for x, y in np.asarray(points).tolist()] for points in polygons]
    return "".join(f"M{'L'.join(outline)}Z" for outline in outlines)
