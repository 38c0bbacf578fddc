"""Loss and learning rate over the course of training."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from operator import attrgetter

from matplotlib.figure import Figure as Canvas

from rvsm.pages import Figure
from rvsm.records import Evaluation
from rvsm.report.configurations import Configuration, Series
from rvsm.report.pictures import panels as plot

_STEPS = 2e3  # a rate that falls further, such as a cosine, has a linear axis, where it ends at zero
_TITLES: dict[str, tuple[str, Callable[[Evaluation], float | None]]] = {
    "loss": ("Training loss", attrgetter("loss")),
    "loss_u": ("Validation loss of u", attrgetter("loss_u")),
    "rate": ("Learning rate", attrgetter("learning_rate")),
}


def losses(found: Sequence[Configuration]) -> Figure | None:
    """Draw the loss on training and validation images and the learning rate, for all configurations."""
    shown = [c for c in found if c.series(_TITLES["loss"][1])]
    if not shown:
        return None
    of = {name: {c: c.series(value) for c in shown} for name, (_, value) in _TITLES.items()}
    drawn_names = [name for name, series in of.items() if any(series.values())]
    rates = [series for series in of["rate"].values() if series]
    same = len(shown) > 1 and all(series[0] == rates[0][0] for series in rates)

    def draw(canvas: Canvas) -> None:
        drawn = plot.panels(canvas, len(drawn_names), width=2.4, sharey=False)
        for axes, name in zip(drawn, drawn_names, strict=True):
            logarithmic = _logarithmic(of[name].values(), most=_STEPS if name == "rate" else inf)
            for c, series in of[name].items():
                if name == "rate" and same:
                    continue
                kept = [plot.positive(one) for one in series] if logarithmic else series
                form = plot.marker(c) if len(shown) > 1 else ""
                plot.curves(
                    axes, kept, colour=plot.colour(c), line=plot.line(c), marker=form, name=c.name, run=c.number
                )
            if name == "rate" and same:
                plot.curves(axes, [rates[0][0]], colour="C6", line="-", name="all configurations")
            axes.set(title=_TITLES[name][0], xlabel="epoch")
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


def _logarithmic(of: Iterable[list[Series]], most: float) -> bool:
    """Return whether the values span so wide a range that a linear axis would show only the first epochs."""
    values = [v for series in of for one in series for _, v in one]
    above = [v for v in values if v > 0]
    return bool(above) and 20 * min(above) < max(above) < most * min(above)


def _lowest(of: dict[Configuration, list[Series]]) -> str:
    last = {c.name: sum(one[-1][1] for one in series) / len(series) for c, series in of.items() if series}
    least = min(last, key=lambda name: last[name])
    return f" {plot.when(list(of))} the lowest training loss is that of {least}, {last[least]:.3g}."
