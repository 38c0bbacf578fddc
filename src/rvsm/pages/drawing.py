"""A plot in a page: an SVG whose colours follow the page, with the numbers behind its lines."""

import io
import re
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.figure import Figure as Canvas

from rvsm.pages.keys import run_of
from rvsm.pages.readings import readings
from rvsm.pages.style import themed

_DROPPED = ("metadata", "style")
_FAMILY = "font-family: 'DejaVu Sans', 'Verdana', sans-serif; "  # the style of the page already sets it
_DECIMALS = re.compile(r"-?\d+\.\d{2,}")
_SPACES = re.compile(r"\s*([MLQCz])\s*|\s+")
_LINK = re.compile(r"url\(#([^)]+)\)")


@dataclass(frozen=True)
class Drawing:
    """A plot in a page."""

    svg: Markup
    readings: list[dict[str, Any]]  # the numbers behind the plot, as plain data; see `rvsm.pages.readings`

    @classmethod
    def of(cls, canvas: Canvas, name: str, *, caption: str) -> "Drawing":
        """Return a canvas as a drawing whose ids begin with a name, and which the element ``caption`` describes."""
        file = io.BytesIO()
        canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        root = ElementTree.fromstring(file.getvalue())
        _tidy(root, name)
        root.attrib |= {"role": "img", "aria-labelledby": caption}
        text = ElementTree.tostring(root, encoding="unicode")
        return cls(Markup(text), readings(canvas))  # the writer of the tree escapes strings in it


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
