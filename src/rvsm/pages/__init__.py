"""Self-contained HTML pages with plots: the shell and the style that reports and the theory laboratory share."""

from rvsm.pages.figure import Figure
from rvsm.pages.keys import Key
from rvsm.pages.page import Card, Cell, Details, Page, Section
from rvsm.pages.style import PALETTE

__all__ = ["PALETTE", "Card", "Cell", "Details", "Figure", "Key", "Page", "Section"]
