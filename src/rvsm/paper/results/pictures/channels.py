"""Norms of output channels with RVSM and ADMM: the figure that the paper's source leaves out."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from rvsm.pages import Figure
from rvsm.paper.results.claims import Channels
from rvsm.paper.results.claims.admm import SMALL
from rvsm.paper.results.collections import Collection
from rvsm.paper.results.printed import PAIRS
from rvsm.paper.results.printed import label as name_of
from rvsm.report.pictures.panels import label, leftmost, lowest, panels, sizes

_FLOOR = 1e-4  # of the axis


def channels(collection: Collection) -> Figure | None:
    """Draw the norms of all channels, relative to the largest of their layer; None unless both of a pair were run."""
    having = {name: e for name, e in collection.experiments.items() if e.outcomes[0].norms_u}
    shown = [having[name] for pair in PAIRS.values() if having.keys() >= set(pair) for name in pair]
    if not shown:
        return None
    counts = {e.name: Channels.of(e) for e in shown}

    def draw(canvas: Canvas) -> None:
        drawn = panels(canvas, len(shown), width=4.2)
        ink = mpl.rcParams["text.color"]
        for axes, e in zip(drawn, shown, strict=True):
            for norms, line, tint in ((e.outcomes[0].norms_w, "-", "C0"), (e.outcomes[0].norms_u, "--", "C1")):
                values = relative(norms)
                kept = [value for value in values if value > 0]  # they come first
                axes.plot([100 * (i + 1) / len(values) for i in range(len(kept))], kept, line, color=tint)
            found = counts[e.name]
            axes.axhline(SMALL, color=ink, linewidth=0.8, linestyle=":")
            if found.zero:
                axes.axvspan(100 * (1 - found.zero / found.total), 100, color=ink, alpha=0.09, linewidth=0)
            axes.text(
                *(0.04, 0.05),
                f"zero: {found.zero:g} of {found.total:g}\nbelow {100 * SMALL:g} %: {found.small:g}",
                transform=axes.transAxes,
                fontsize=8.5,
            )
            axes.set(yscale="log", xlim=(0, 100), ylim=(_FLOOR, 1.6))
            axes.set_title(label(name_of(e.name), 40), fontsize=9.5)
        lowest(drawn, "channels, % of all")
        leftmost(drawn, "norm / largest")
        lines = [Line2D([], [], color="C0"), Line2D([], [], color="C1", linestyle="--")]
        canvas.legend(lines, ["weights w", "sparse network u"], loc="outside lower center", ncols=2)

    size, phone = sizes(len(shown), height=2.1, width=4.2)
    return Figure(
        f"{collection.name}-channels",
        "ResNet-18: the norms of all output channels, each divided by the largest of its layer, sorted: weights w"
        " (solid) and sparse network u (dashed)."
        f"{' The shaded fraction of the channels of u is zero.' if any(c.zero for c in counts.values()) else ''}"
        f" The dotted line is {100 * SMALL:g} % of the largest. The paper's source says that ADMM has many"
        " channels with very small norms but not as many with zero norms; it leaves the figure itself out."
        f"{' If there are several seeds, the lines show the first.' if any(len(e.runs) > 1 for e in shown) else ''}",
        draw,
        size,
        phone,
    )


def relative(norms: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the norms of all layers, each divided by the largest of its layer, from the largest to the smallest.

    >>> relative({"a": [1.0, 4.0], "b": [0.0, 0.0]})
    [1.0, 0.25, 0.0, 0.0]
    """
    found = [(norm, max(layer)) for layer in norms.values() for norm in layer]
    return sorted((norm / largest if largest else 0.0 for norm, largest in found), reverse=True)
