"""Accuracy, losses, learning rate, sparsity and gap over the course of training."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from rvsm.pages import Figure
from rvsm.records import Evaluation
from rvsm.report.configurations import Configuration, Series
from rvsm.report.pictures import panels as plot

_W, _U = attrgetter("accuracy_w"), attrgetter("accuracy_u")
_STEPS = 2e3  # a rate that falls further, such as a cosine, has a linear axis, where it ends at zero
_LOSSES: dict[str, tuple[str, Callable[[Evaluation], float | None]]] = {
    "loss": ("Training loss", attrgetter("loss")),
    "loss_u": ("Validation loss of u", attrgetter("loss_u")),
    "rate": ("Learning rate", attrgetter("learning_rate")),
}


def accuracy(found: Sequence[Configuration]) -> Figure | None:
    """Draw the accuracy of w and u against the epoch, a panel for each configuration."""
    validated = any(c.series(_W) for c in found)
    w: Callable[[Evaluation], float | None] = _W if validated else attrgetter("accuracy")
    having = [c for c in found if c.series(w)]
    shown = having[: plot.MOST]
    if not shown:
        return None
    sparse = any(c.series(_U) for c in shown)
    bottom, cut = _bottom([s for c in shown for s in (*c.series(w), *c.series(_U))])

    def draw(canvas: Canvas) -> None:
        drawn = plot.panels(canvas, len(shown))
        for axes, c in zip(drawn, shown, strict=True):
            plot.shade(axes, c.first.phases)
            plot.curves(axes, c.series(w), colour="C0", line="-", factor=100, name=plot.W_AND_U[0].name)
            plot.curves(axes, c.series(_U), colour="C1", line="--", factor=100, name=plot.W_AND_U[1].name)
            plot.title(axes, c)
        drawn[0].set_ylim(100 * bottom, None)
        plot.epochs(drawn)
        plot.lowest(drawn, "epoch")
        plot.leftmost(drawn, "accuracy, %")

    size, phone = plot.sizes(len(shown), height=2.2 if len(shown) > 2 else 3.2)
    caption = _caption(shown, validated=validated, sparse=sparse, cut=cut) + plot.omitted(len(having))
    return Figure("accuracy-by-epoch", caption, draw, size, phone, plot.W_AND_U if sparse else ())


def losses(found: Sequence[Configuration]) -> Figure | None:
    """Draw the loss on training and validation images and the learning rate, for all configurations."""
    shown = [c for c in found if c.series(_LOSSES["loss"][1])]
    if not shown:
        return None
    of = {name: {c: c.series(value) for c in shown} for name, (_, value) in _LOSSES.items()}
    drawn_names = [name for name, series in of.items() if any(series.values())]
    rates = [series for series in of["rate"].values() if series]
    same = len(shown) > 1 and all(series[0] == rates[0][0] for series in rates)

    def draw(canvas: Canvas) -> None:
        drawn = plot.panels(canvas, len(drawn_names), width=2.4, sharey=False)
        for axes, name in zip(drawn, drawn_names, strict=True):
            logarithmic = _logarithmic(of[name].values(), most=_STEPS if name == "rate" else inf)
            if name == "rate" and same:
                plot.curves(axes, [rates[0][0]], colour="C6", line="-", name="all configurations")
            else:
                _overlaid(axes, of[name], logarithmic=logarithmic)
            axes.set(title=_LOSSES[name][0], xlabel="epoch")
            if logarithmic:
                plot.decades(axes)
            else:
                axes.set_ylim(bottom=0)
        plot.epochs(drawn)

    validated = "loss_u" in drawn_names
    several = len(shown) > 1
    return Figure(
        "loss-and-learning-rate",
        "The loss on the training images, as a mean over the batches of an epoch"
        f"{', the loss of the sparse network u on the validation images,' if validated else ','} and the learning"
        f" rate at the end of each epoch{', which is the same for all' if same else ''}."
        f"{_lowest(of['loss']) if several else ''}{plot.seeds(shown)}",
        draw,
        (plot.WIDE, 2.9),
        (plot.NARROW, 2.2 * len(drawn_names) + 0.2),
        [plot.key(c) for c in shown] if several else (),
    )


def sparsity_and_gap(found: Sequence[Configuration]) -> Figure | None:
    """Draw the fraction of zeros and the distance between w and u against the epoch, for all configurations."""
    sparsity, gap, speedup = attrgetter("sparsity"), attrgetter("gap"), attrgetter("speedup")
    shown = [c for c in found if c.series(sparsity) or c.series(gap)]
    if not shown:
        return None

    fast = {c: c.series(speedup) for c in shown if c.series(speedup)}

    def draw(canvas: Canvas) -> None:
        zeros, gaps, *speeds = plot.panels(canvas, 3 if fast else 2, width=2.6 if fast else 3.4, sharey=False)
        for axes in speeds:
            _overlaid(axes, fast)
            axes.set(title="Predicted speed", xlabel="epoch", ylabel="× the dense network")
            axes.set_ylim(bottom=0)
        _overlaid(zeros, {c: c.series(sparsity) for c in shown}, factor=100)
        _overlaid(gaps, {c: c.series(gap) for c in shown}, logarithmic=logarithmic)
        zeros.set(title="Zeros", xlabel="epoch", ylabel="of the sparsified weights, %", ylim=(-3, 103))
        gaps.set(title="Gap", xlabel="epoch", ylabel="‖w − u‖")
        plot.epochs((zeros, gaps, *speeds))
        if logarithmic:
            plot.decades(gaps)
        else:
            gaps.set_ylim(bottom=0)
        if len(shown) == 1:
            for axes in (zeros, gaps, *speeds):
                plot.shade(axes, shown[0].first.phases)

    zero = any(v == 0 for c in shown for s in c.series(gap) for _, v in s)
    logarithmic = _logarithmic([c.series(gap) for c in shown])
    ends = {c.name: [s[-1][1] for s in c.series(gap)] for c in shown if c.series(gap)}
    last = ""
    if ends:
        largest = max(ends, key=lambda name: max(ends[name]))
        size, owner = max(ends[largest]), f", of {largest}" if len(ends) > 1 else ""
        last = f"the largest gap is {size:.3g}{owner}." if size > 0 else "w = u in all runs."
        last = f" {plot.when(shown)} {last}"
    if logarithmic and zero:
        last += " The axis of the gap is logarithmic: where a line is missing, the gap is zero."
    predicted = " The speed of u is that in the runtime, predicted from the times of the layers." if fast else ""
    return Figure(
        "sparsity-and-gap",
        "The fraction of zeros in u, and the gap, which is the distance between the weights w and u. If the gap goes to"
        " zero, nothing is lost when u replaces w. If it does not, the final threshold removes the difference at"
        f" once.{last}{predicted}{plot.seeds(shown)}",
        draw,
        (plot.WIDE, 3.4),
        (plot.NARROW, 8.0 if fast else 5.4),
        [plot.key(c) for c in shown] if len(shown) > 1 else (),
    )


def _overlaid(
    axes: Axes, of: Mapping[Configuration, Sequence[Series]], *, factor: float = 1.0, logarithmic: bool = False
) -> None:
    """Draw the curves of all configurations in one panel."""
    for c, series in of.items():
        kept = [plot.positive(one) for one in series] if logarithmic else series
        form, style = plot.marker(c) if len(of) > 1 else "", plot.line(c)
        plot.curves(
            axes, kept, colour=plot.colour(c), line=style, marker=form, factor=factor, name=c.name, run=c.number
        )


def _bottom(series: Sequence[Series]) -> tuple[float, bool]:
    """Return the start of the axis: below all values after the first fifth, so that the end can be seen."""
    last = max(epoch for one in series for epoch, _ in one)
    late = [v for one in series for epoch, v in one if epoch > 0.2 * last]
    least, lowest_of_all = min(late), min(v for one in series for _, v in one)
    bottom = max(least - 0.15 * (max(late) - least) - 0.01, 0.0)
    return bottom, lowest_of_all < bottom


def _caption(shown: Sequence[Configuration], *, validated: bool, sparse: bool, cut: bool) -> str:
    training = "training images, batch by batch, since none were held out for validation"
    caption = f"Accuracy on the {'validation images' if validated else training}, against the epoch."
    if sparse:
        caption += (
            " The optimizer updates the weights w (solid). The sparse network u (dashed) is the result."
            " Where the lines coincide, thresholding costs nothing."
        )
        distances = {c.name: d for c in shown if (d := _distance(c)) is not None}
        if distances:
            name = max(distances, key=lambda key: abs(distances[key]))
            of = f"the largest difference, that of {name}, is" if len(distances) > 1 else "the difference is"
            caption += f" {plot.when(shown)} {of} {abs(distances[name]) * 100:.1f} points"
            compared = "worse" if distances[name] > 0 else "better"
            caption += "." if abs(distances[name]) < 5e-4 else f"; u is {compared}."
    if any(c.first.phases for c in shown):
        caption += (
            " The shading shows the phases of a run with a target sparsity: the sparsity rises in the ramp phase, stays"
            " in the hold phase, and the zeros are fixed in the heal phase, so that w = u."
        )
    if cut:
        caption += " The axis leaves out lower values in the first epochs."
    return caption + plot.seeds(shown)


def _distance(c: Configuration) -> float | None:
    """Return by how much u is worse than w at the last evaluation, averaged over the runs."""
    last = [e for run in c.runs for e in run.evaluations[-1:]]
    found = [e.accuracy_w - e.accuracy_u for e in last if e.accuracy_w is not None and e.accuracy_u is not None]
    return sum(found) / len(found) if found else None


def _logarithmic(of: Iterable[list[Series]], most: float = inf) -> bool:
    """Return whether the values span so wide a range that a linear axis would show only the first epochs."""
    values = [v for series in of for one in series for _, v in one]
    above = [v for v in values if v > 0]
    return bool(above) and 20 * min(above) < max(above) < most * min(above)


def _lowest(of: dict[Configuration, list[Series]]) -> str:
    last = {c.name: sum(one[-1][1] for one in series) / len(series) for c, series in of.items() if series}
    least = min(last, key=lambda name: last[name])
    return f" {plot.when(list(of))} the lowest training loss is that of {least}, {last[least]:.3g}."
