"""Self-contained HTML pages with plots: the shell and the style that reports and the theory laboratory share."""

from rvsm.pages.figure import PALETTE, Figure
from rvsm.pages.page import Card, Cell, Details, Page, Section

__all__ = ["PALETTE", "Card", "Cell", "Details", "Figure", "Page", "Section"]
