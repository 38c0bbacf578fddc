"""Self-contained HTML pages with plots: the layout and the style of reports and of the theory laboratory."""

from rvsm.pages.figure import Figure
from rvsm.pages.keys import Key
from rvsm.pages.page import Card, Cell, Details, Page, Section
from rvsm.pages.style import PALETTE

__all__ = ["PALETTE", "Card", "Cell", "Details", "Figure", "Key", "Page", "Section"]
