"""Sparse networks compared with dense ones: accuracy and speed."""

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from rvsm.pages import Figure
from rvsm.paper.results.collections import Collection
from rvsm.paper.results.tables import BATCHES, dense_of, speed_at
from rvsm.report import Configuration
from rvsm.report.pictures.panels import NARROW, WIDE, label, panels


def flagship(collection: Collection) -> Figure | None:
    """Draw accuracies of sparse and dense networks, and the speed of the packed ones if it was measured."""
    sparse = [e for e in collection.experiments.values() if not e.dense]
    if not sparse:
        return None
    speeds = {e.name: _speeds(e) for e in sparse}
    timed = any(speeds.values())

    def draw(canvas: Canvas) -> None:
        names = [f"{label(e.name, 28)}\n{100 * e.sparsity.mean:.1f} % zeros" for e in sparse]
        axes = panels(canvas, 2 if timed else 1, width=3.4, sharex=False, sharey=True)
        _accuracies(axes[0], sparse, collection)
        if timed:
            _bars(axes[1], sparse, speeds)
        axes[0].set_yticks(range(len(sparse)), names, fontsize=8.5)
        axes[0].set_ylim(len(sparse) - 0.45, -0.55)

    height = 1.3 + 0.85 * len(sparse)
    return Figure(
        f"{collection.name}-accuracy-speed",
        "Test accuracy of the sparse network (filled) and of the dense network of the same shape (hollow)."
        + (
            " Speed is how many times faster the packed network runs than the same network in"
            " the fastest dense float32 engine tried, by batch size. At the dotted line they are equally fast."
            if timed
            else ""
        ),
        draw,
        (WIDE, height + 0.3),
        (NARROW, (height + 0.3) * (2 if timed else 1)),
    )


def _accuracies(axes: Axes, sparse: list[Configuration], collection: Collection) -> None:
    for place, e in enumerate(sparse):
        spread = 100 * (e.accuracy_u.std or 0.0)
        value = 100 * e.accuracy_u.mean
        axes.errorbar(value, place, xerr=spread or None, fmt="o", color="C0", markersize=8, capsize=3)
        _named(axes, value, place, f"sparse {value:.2f}", below=True)
        if (dense := dense_of(e, collection.experiments)) is not None:
            value = 100 * dense.accuracy_u.mean
            axes.plot(value, place, "o", color="C1", markersize=9, markerfacecolor="none", markeredgewidth=1.6)
            _named(axes, value, place, f"dense {value:.2f}", below=False)
    axes.set_xlabel("test accuracy, %")
    axes.margins(x=0.25)


def _named(axes: Axes, value: float, place: int, text: str, *, below: bool) -> None:
    offset, vertical = ((0, -8), "top") if below else ((0, 8), "bottom")
    axes.annotate(
        text, (value, place), xytext=offset, textcoords="offset points", ha="center", va=vertical, fontsize=8.5
    )


def _speeds(e: Configuration) -> dict[int, float]:
    means = {batch: e.mean(speed_at(batch)) for batch in BATCHES}
    return {batch: mean.mean for batch, mean in means.items() if mean}


def _bars(axes: Axes, sparse: list[Configuration], speeds: dict[str, dict[int, float]]) -> None:
    height = 0.75 / len(BATCHES)
    axes.set_axisbelow(True)
    for i, batch in enumerate(BATCHES):
        found = [(place, speeds[e.name][batch]) for place, e in enumerate(sparse) if batch in speeds[e.name]]
        places = [place + (i - (len(BATCHES) - 1) / 2) * height for place, _ in found]
        axes.barh(places, [speed for _, speed in found], height=0.85 * height, color="C0")
        for place, (_, value) in zip(places, found, strict=True):
            text, offset = f"{value:.1f} × at batch {batch}", (4, 0)
            axes.annotate(text, (value, place), offset, textcoords="offset points", va="center", fontsize=8.5)
    axes.axvline(1, color=mpl.rcParams["text.color"], linewidth=0.9, linestyle=":")
    axes.set_xlim(0, 1.5 * max([1.0, *(speed for of in speeds.values() for speed in of.values())]))
    axes.set_xlabel("× the fastest dense float32 engine")
    axes.grid(visible=False, axis="y")
