"""A plot that is drawn twice, for light and dark pages, and saved for a paper."""

import base64
import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from rvsm.files import replacing

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""

_LIGHT = {"ink": "#1f2328", "faint": "#d0d7de", "paper": "#ffffff"}
_DARK = {"ink": "#d1d7e0", "faint": "#3d444d", "paper": "#151b23"}


@dataclass(frozen=True)
class Figure:
    """A picture with its caption.

    Attributes:
        name: the name of its files.
        caption: what to see in it, in a sentence or two.
        draw: draws it onto an empty canvas; called once for each style and size.
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
        return self._source(self.size, dark=False), self._source(self.size, dark=True)

    def phone_sources(self) -> tuple[str, str] | None:
        """Return the same for narrow screens, if there is such a picture."""
        if self.phone is None:
            return None
        return self._source(self.phone, dark=False), self._source(self.phone, dark=True)

    def save(self, folder: Path) -> list[Path]:
        """Write the light picture as PNG and PDF, each in one piece, and return the files."""
        metadata: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"Creator": None, "CreationDate": None}}
        files = []
        with self._canvas(self.size, dark=False) as canvas:
            for ending, about in metadata.items():
                file = folder / f"{self.name}.{ending}"
                with replacing(file) as temporary:
                    canvas.savefig(temporary, format=ending, dpi=150, metadata=about)
                files.append(file)
        return files

    def _source(self, size: tuple[float, float], *, dark: bool) -> str:
        with self._canvas(size, dark=dark) as canvas:
            FigureCanvasSVG(canvas)
            file = io.BytesIO()
            canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        return "data:image/svg+xml;base64," + base64.b64encode(_smaller(file.getvalue())).decode()

    @contextmanager
    def _canvas(self, size: tuple[float, float], *, dark: bool) -> Iterator[Canvas]:
        with mpl.rc_context(_style(dark=dark)), warnings.catch_warnings():
            # A browser has letters that the fonts here lack, and shows them.
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
            canvas = Canvas(figsize=size, layout="constrained")
            self.draw(canvas)
            yield canvas


def _smaller(svg: bytes) -> bytes:
    """Return a picture without comments and indentation, which are a tenth of it."""
    return re.sub(rb"\n\s*", b"\n", re.sub(rb"<!--.*?-->", b"", svg, flags=re.DOTALL))


def _style(*, dark: bool) -> Any:
    colours = _DARK if dark else _LIGHT
    ink, faint = colours["ink"], colours["faint"]
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
        "figure.facecolor": colours["paper"],
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
