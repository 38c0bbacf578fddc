"""A plot for light and dark pages, wide and narrow ones, and for a paper."""

import base64
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure as Canvas

from rvsm.files import replacing

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""

_LIGHT = {"ink": "#1f2328", "faint": "#d0d7de", "paper": "#fffffe"}  # not quite white, so that white stays white
_DARK = {"ink": "#d1d7e0", "faint": "#3d444d", "paper": "#151b23"}


@dataclass(frozen=True)
class Figure:
    """A picture with its caption.

    Attributes:
        name: the name of its files.
        caption: what to see in it, in a sentence or two.
        draw: draws it onto an empty canvas; called once for each size. Ink and grid have the style's colours, which
            change on dark pages; other colours are the same on both.
        size: width and height in inches.
        phone: width and height in inches on a narrow screen, where letters would else be too small; `draw` sees by
            the size of its canvas how many columns there is room for.

    """

    name: str
    caption: str
    draw: Callable[[Canvas], None]
    size: tuple[float, float] = (7.0, 4.2)
    phone: tuple[float, float] | None = None

    def sources(self) -> tuple[str, str]:
        """Return the picture as two data addresses, for light and for dark pages."""
        return self._wide_sources

    def phone_sources(self) -> tuple[str, str] | None:
        """Return the same for narrow screens, if there is such a picture."""
        return None if self.phone is None else _sources(self._drawn(self.phone))

    def save(self, folder: Path, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
        """Write the light picture as PNG and PDF, each in one piece, and return the files."""
        metadata: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"Creator": None, "CreationDate": None}}
        files = []
        for ending in formats:
            file = folder / f"{self.name}.{ending}"
            with replacing(file) as temporary, _drawing():
                self._wide.savefig(temporary, format=ending, dpi=150, metadata=metadata[ending])
            files.append(file)
        return files

    @cached_property
    def _wide_sources(self) -> tuple[str, str]:
        return _sources(self._wide)

    @cached_property
    def _wide(self) -> Canvas:
        return self._drawn(self.size)

    def _drawn(self, size: tuple[float, float]) -> Canvas:
        """Draw on a canvas, and place everything once for all formats, which takes longer than to draw."""
        with _drawing():
            canvas = Canvas(figsize=size, layout="constrained")
            self.draw(canvas)
            canvas.draw_without_rendering()
            canvas.set_layout_engine("none")
        return canvas


def _sources(canvas: Canvas) -> tuple[str, str]:
    """Return a picture as data addresses: as it is, and with the colours of a dark page in place of the light ones."""
    file = io.BytesIO()
    with _drawing():
        canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    light = _smaller(file.getvalue())
    dark = light
    for name, colour in _LIGHT.items():
        dark = dark.replace(colour.encode(), _DARK[name].encode())
    first, second = ("data:image/svg+xml;base64," + base64.b64encode(svg).decode() for svg in (light, dark))
    return first, second


@contextmanager
def _drawing() -> Iterator[None]:
    with mpl.rc_context(_style()), warnings.catch_warnings():
        # A browser has letters that the fonts here lack, and shows them.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


def _smaller(svg: bytes) -> bytes:
    """Return a picture without comments and indentation, which are a tenth of it."""
    return re.sub(rb"\n\s*", b"\n", re.sub(rb"<!--.*?-->", b"", svg, flags=re.DOTALL))


def _style() -> Any:
    ink, faint = _LIGHT["ink"], _LIGHT["faint"]
    cycle = [*PALETTE[:-1], ink]
    return {
        "axes.edgecolor": faint,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.labelcolor": ink,
        "axes.prop_cycle": cycler(color=cycle),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": ink,
        "axes.titlesize": "medium",
        "figure.facecolor": _LIGHT["paper"],
        "font.size": 10,
        "grid.color": faint,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.labelcolor": ink,
        "lines.linewidth": 1.6,
        "svg.fonttype": "none",
        "svg.hashsalt": "rvsm",
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
    }
