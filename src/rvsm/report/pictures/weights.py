"""The magnitudes of the weights before and after the threshold."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, StrMethodFormatter

from rvsm.pages import Figure, Key
from rvsm.records import Histogram, Record
from rvsm.report.configurations import Configuration
from rvsm.report.pictures.panels import MOST, leftmost, lowest, omitted, panels, power, sizes, title

_W, _U = Key("w, before", "C0"), Key("u, after", "C1", filled=True)
_THRESHOLD = Key("threshold", "C6", "--")


@dataclass(frozen=True)
class _Sizes:
    """Two histograms of one run; the first is from the end of training unless ``epoch`` is set."""

    before: Histogram
    after: Histogram | None
    epoch: float | None
    threshold: tuple[float, float] | None


def weights(found: Sequence[Configuration]) -> Figure | None:
    """Draw histograms of |w| and |u| on a logarithmic axis, with a panel for each configuration."""
    having = [(c, sizes_) for c in found if (sizes_ := _read(c.first)) is not None]
    shown = dict(having[:MOST])
    if not shown:
        return None
    used = [edge for one in shown.values() for h in (one.before, one.after) if h for edge in _used(h)]
    limits = (min(used, default=1e-7), max(used, default=10.0))

    def draw(canvas: Canvas) -> None:
        drawn = panels(canvas, len(shown), sharey=False)
        for axes, (c, one) in zip(drawn, shown.items(), strict=True):
            axes.stairs(one.before.counts, one.before.edges, color="C0", linewidth=1.4, label=_W.name)
            if one.after is not None:
                axes.stairs(one.after.counts, one.after.edges, color="C1", fill=True, alpha=0.55, label=_U.name)
            if one.threshold is not None:
                low, high = one.threshold
                ink = mpl.rcParams["text.color"]
                axes.axvspan(low, high, color=ink, alpha=0.15, linewidth=0)
                for edge in {low, high}:
                    axes.axvline(edge, color=ink, linestyle="--", linewidth=1)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(numticks=4))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
            axes.set_xlim(*limits)
            axes.set_ylim(0, 1.05 * max(1.0, *one.before.counts, *(one.after.counts if one.after else ())))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10], integer=True))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.set_axisbelow(True)
            title(axes, c, _zeros(one), room=0.75)
        lowest(drawn, "magnitude of a weight")
        leftmost(drawn, "weights in a bin")

    older = " or ".join(dict.fromkeys(f"{one.epoch:g}" for one in shown.values() if one.epoch is not None))
    unhealed = f" If zeros were fixed in a heal phase, or the run is not finished, w is taken from epoch {older}."
    several = any(len(c.runs) > 1 for c in shown)
    size, phone = sizes(len(shown), height=2.4 if len(shown) > 2 else 3.0)
    crowded = any(one.before.counts[0] for one in shown.values())
    marked = any(one.threshold for one in shown.values())
    keys = [_W, *([_U] if any(one.after for one in shown.values()) else ()), *([_THRESHOLD] if marked else ())]
    return Figure(
        "weights-histogram",
        "The number of weights of each magnitude, on a logarithmic axis: before the threshold (line) and after it"
        " (filled). A logarithmic axis cannot show zeros; their number after the threshold is above each panel."
        f"{' Weights to the left of the dashed line become zero.' if marked else ''}"
        f"{' The first bin also contains all smaller weights.' if crowded else ''}{unhealed if older else ''}"
        f"{' The first of several seeds is shown.' if several else ''}"
        f" A valley at the threshold means that few weights are borderline.{omitted(len(having))}",
        draw,
        size,
        phone,
        keys,
    )


def _read(run: Record) -> _Sizes | None:
    """Return the histograms at the end, or before the heal phase, in which w = u, or the latest ones so far."""
    heal = run.phases.get("heal")
    having = [(e, e.histogram) for e in run.evaluations if heal is None or e.epoch <= heal[0]]
    last, before = next(((e, h) for e, h in reversed(having) if h is not None), (None, None))
    threshold = None
    single = run.option("groups", "name") in (None, "element")  # otherwise it is a threshold of norms, not of weights
    if single and last is not None and last.threshold and min(last.threshold) > 0:
        threshold = (min(last.threshold), max(last.threshold))
    outcome = run.outcome
    if last is not None and before is not None and (outcome is None or heal is not None):
        return _Sizes(before, outcome.after if outcome else None, last.epoch, threshold)
    if outcome is None or outcome.before is None:
        return None
    return _Sizes(outcome.before, outcome.after if run.method != "dense" else None, None, threshold)


def _zeros(one: _Sizes) -> str:
    if one.after is None:
        return f"{one.before.zeros:,} zeros"
    total = one.after.zeros + sum(one.after.counts)
    return f"{one.after.zeros:,} zeros ({100 * one.after.zeros / max(total, 1):.1f}\u00a0%)"


def _used(h: Histogram) -> list[float]:
    """Return the edges between which nearly all weights lie: up to a thousandth of them may be smaller."""
    total = sum(h.counts)
    if not total:
        return []
    edges = h.edges
    first = next(i for i, running in enumerate(accumulate(h.counts)) if running > 0.001 * total)
    last = max(i for i, n in enumerate(h.counts) if n)
    return [edges[first], edges[last + 1]]
