"""A plot in a page: an SVG whose colours follow the page, and the numbers that are shown when a reader points at it."""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch

from rvsm.pages.keys import run_of
from rvsm.pages.style import css, themed

_BACKENDS: dict[str, Any] = {"svg": FigureCanvasSVG, "png": FigureCanvasAgg, "pdf": FigureCanvasPdf}
_DROPPED = ("metadata", "style")
_FAMILY = "font-family: 'DejaVu Sans', 'Verdana', sans-serif; "  # the style of the page already sets it
_DECIMALS = re.compile(r"-?\d+\.\d{2,}")
_SPACES = re.compile(r"\s*([MLQCz])\s*|\s+")
_MOST = 1000  # points of a line; single points of a longer line are hard to hit, and the page would be large
_LINK = re.compile(r"url\(#([^)]+)\)")


@dataclass(frozen=True)
class Drawing:
    """A plot in a page."""

    svg: Markup
    readings: list[dict[str, Any]]  # the numbers behind the plot, as `readings` returns them

    @classmethod
    def of(cls, canvas: Canvas, name: str, *, caption: str) -> "Drawing":
        """Return a canvas as a drawing whose ids begin with a name, and which the element ``caption`` describes."""
        file = io.BytesIO()
        with _transparent(canvas):
            render(canvas, file, "svg", metadata={"Date": None})
        root = ElementTree.fromstring(file.getvalue())
        _tidy(root, name)
        root.attrib |= {"role": "img", "aria-labelledby": caption}
        text = ElementTree.tostring(root, encoding="unicode")
        return cls(Markup(text), readings(canvas))  # the writer of the tree escapes strings in it


def render(canvas: Canvas, file: Any, ending: str, **options: Any) -> None:
    """Write a canvas whose layout is final; ``savefig`` would draw it twice, the first time for the layout."""
    getattr(_BACKENDS[ending](canvas), f"print_{ending}")(file, **options)


@contextmanager
def _transparent(canvas: Canvas) -> Iterator[None]:
    patches = [canvas.patch, *(axes.patch for axes in canvas.axes)]
    colours = [patch.get_facecolor() for patch in patches]
    for patch in patches:
        patch.set_facecolor("none")
    yield
    for patch, colour in zip(patches, colours, strict=True):
        patch.set_facecolor(colour)


def readings(canvas: Canvas) -> list[dict[str, Any]]:
    """Return the numbers behind a plot: a table for each panel with a labelled line or stairs, ready for JSON.

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


def _tidy(root: ElementTree.Element, name: str) -> None:
    """Keep only what a page needs: no namespaces, no unused ids, two decimals, and the colours of the page."""
    for element in root.iter():
        element.tag = _plain(element.tag)
        element.attrib = {_plain(key): value for key, value in element.attrib.items()}
        for child in [child for child in element if _plain(child.tag) in _DROPPED]:
            element.remove(child)
        element.tail = None  # this is indentation; nothing else follows an element
        element.text = element.text if element.text and element.text.strip() else None
    used = {
        target
        for element in root.iter()
        for value in (element.get("href", ""), f"#{_target(element.get('clip-path', ''))}")
        for target in [value.removeprefix("#")]
        if value.startswith("#")
    }
    for element in root.iter():
        if (own := element.attrib.pop("id", None)) is not None:
            if own in used:
                element.set("id", f"{name}-{own}")
            elif (run := run_of(own)) is not None:
                element.set("data-run", run)
        if element.get("href", "").startswith("#"):
            element.set("href", f"#{name}-{element.get('href', '').removeprefix('#')}")
        if target := _target(element.get("clip-path", "")):
            element.set("clip-path", f"url(#{name}-{target})")
        for key in ("d", "x", "y", "transform"):
            if key in element.attrib:
                short = _DECIMALS.sub(_rounded, element.attrib[key])
                element.set(key, _SPACES.sub(lambda found: found[1] or " ", short).strip())
        if "style" in element.attrib:
            element.set("style", themed(element.attrib["style"].replace(_FAMILY, "").replace(": ", ":")))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]


def _plain(name: str) -> str:
    return name.rpartition("}")[2]


def _target(link: str) -> str:
    """Return the target of a CSS link.

    >>> _target("url(#p1)"), _target("none")
    ('p1', '')
    """
    found = _LINK.fullmatch(link)
    return found[1] if found else ""


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


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
