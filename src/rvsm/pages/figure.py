"""A plot for light and dark pages, for wide and narrow screens, and for papers."""

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from rvsm.files import replacing
from rvsm.pages import keys as legend
from rvsm.pages.drawing import Drawing, render
from rvsm.pages.keys import Key
from rvsm.pages.style import parameters

FORMATS = ("png", "pdf")
"""The file formats of a picture."""


@dataclass(frozen=True)
class Figure:
    """A picture with its caption.

    Attributes:
        name: the name of its files.
        caption: what the picture shows, in one or two sentences.
        draw: draws it onto an empty canvas; called once for each size. Ink and grid have the colours of the style,
            which change on dark pages; other colours are the same on both. Lines with a label show their numbers when
            a reader points at them. Artists whose gid is "run-3" belong to run 3, which a reader can hide.
        size: width and height in inches.
        phone: width and height in inches on a narrow screen, where letters would otherwise be too small; `draw` can
            use the size of its canvas to choose the number of columns.
        keys: the legend, which `draw` leaves out: pages show it as text, and files have it drawn.

    """

    name: str
    caption: str
    draw: Callable[[Canvas], None]
    size: tuple[float, float] = (7.0, 4.2)
    phone: tuple[float, float] | None = None
    keys: Sequence[Key] = ()

    def drawings(self) -> dict[str, Drawing]:
        """Return the picture for a page: "wide", and "narrow" if there is one for narrow screens."""
        return self._drawings

    def save(self, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
        """Write the light picture as PNG and PDF, each atomically, and return the files."""
        metadata: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"Creator": None, "CreationDate": None}}
        files = [folder / f"{self.name}.{ending}" for ending in formats]
        canvas = self._wide
        with _drawing(), legend.drawn(canvas, self.keys):
            canvas.set_dpi(150)
            for file, ending in zip(files, formats, strict=True):
                with replacing(file) as temporary:
                    render(canvas, temporary, ending, metadata=metadata[ending])
        return files

    @cached_property
    def _drawings(self) -> dict[str, Drawing]:
        canvases = {"wide": self._wide}
        if self.phone is not None:
            canvases["narrow"] = self._drawn(self.phone)
        with _drawing():
            return {
                width: Drawing.of(canvas, f"{self.name}-{width}", caption=f"{self.name}-caption")
                for width, canvas in canvases.items()
            }

    @cached_property
    def _wide(self) -> Canvas:
        return self._drawn(self.size)

    def _drawn(self, size: tuple[float, float]) -> Canvas:
        """Draw on a canvas, and compute the layout once for all formats, since this takes longer than drawing."""
        with _drawing():
            canvas = Canvas(figsize=size, layout="constrained")
            self.draw(canvas)
            for axes in canvas.axes:
                for spine in axes.spines.values():
                    spine.set_in_layout(False)  # their extents, which are those of the panel, take long to compute
                for axis in (axes.xaxis, axes.yaxis):
                    if not axis.get_label_text():
                        axis.set_label_coords(0, 0)  # finding the place of a label takes long, even of an empty one
            engine = canvas.get_layout_engine()
            if engine is not None:
                engine.execute(canvas)
            canvas.set_layout_engine("none")
        return canvas


@contextmanager
def _drawing() -> Iterator[None]:
    with mpl.rc_context(parameters()), warnings.catch_warnings(), _uncollected():
        # A browser can show letters that the fonts here lack.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage: all of the many objects of a picture are in use, and going through them takes long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
