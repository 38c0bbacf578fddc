"""A plot that is drawn twice, for light and dark pages, and saved for a paper."""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

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
        draw: draws it onto an empty canvas; called once for each style.
        size: width and height in inches.

    """

    name: str
    caption: str
    draw: Callable[[Canvas], None]
    size: tuple[float, float] = (7.0, 4.2)

    def sources(self) -> tuple[str, str]:
        """Return the picture as two data addresses, for light and for dark pages."""
        return self._source(dark=False), self._source(dark=True)

    def save(self, folder: Path) -> list[Path]:
        """Write the light picture as PNG and PDF, and return the files."""
        files = [folder / f"{self.name}.{ending}" for ending in ("png", "pdf")]
        with mpl.rc_context(_style(dark=False)):
            canvas = self._canvas()
            for file in files:
                canvas.savefig(file, dpi=150, metadata={"Creator": None} if file.suffix == ".pdf" else None)
        return files

    def _source(self, *, dark: bool) -> str:
        with mpl.rc_context(_style(dark=dark)):
            canvas = self._canvas()
            FigureCanvasSVG(canvas)
            file = io.BytesIO()
            canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()

    def _canvas(self) -> Canvas:
        canvas = Canvas(figsize=self.size, layout="constrained")
        self.draw(canvas)
        return canvas


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
