"""The colours of pages and plots: those of a light page, and the variables that replace them in pages."""

from typing import Any

from cycler import cycler

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can distinguish."""

INK, FAINT, PAPER = "#1f2328", "#d0d7de", "#fffffe"  # paper is not quite white, so that white itself is not replaced
CYCLE = (*PALETTE[:-1], INK)
"""The colours "C0" to "C6" of plots; the last is the colour of text."""

_VARIABLES = {INK: "var(--ink)", FAINT: "var(--line)", PAPER: "var(--paper)"}


def css(colour: str) -> str:
    """Return a colour for a page: ink, grid and paper follow the page, which may be dark; others are unchanged.

    >>> css("#1f2328"), css("C6"), css("#0072B2")
    ('var(--ink)', 'var(--ink)', '#0072B2')
    """
    if colour.startswith("C") and colour[1:].isdigit():
        colour = CYCLE[int(colour[1:]) % len(CYCLE)]
    return _VARIABLES.get(colour, colour)


def themed(style: str) -> str:
    """Return a CSS style in which ink, grid and paper follow the page.

    >>> themed("fill: none; stroke: #d0d7de")
    'fill: none; stroke: var(--line)'
    """
    for colour, variable in _VARIABLES.items():
        style = style.replace(colour, variable)
    return style


def parameters() -> Any:
    """Return matplotlib's parameters."""
    return {
        "axes.edgecolor": FAINT,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.labelcolor": INK,
        "axes.prop_cycle": cycler(color=CYCLE),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": INK,
        "axes.titlesize": "medium",
        "axes.titley": 1.0,  # no search for ticks above the panel, which takes long
        "figure.facecolor": PAPER,
        "font.sans-serif": ["DejaVu Sans", "Verdana"],  # of the same width: a layout made with one fits the other
        "font.size": 10,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.labelcolor": INK,
        "lines.linewidth": 1.6,
        "svg.fonttype": "none",
        "svg.hashsalt": "rvsm",
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
