"""The norms of output channels, which show the filters that are nearly or entirely zero."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure as Canvas

from rvsm.pages import Figure
from rvsm.records import Outcome
from rvsm.report.configurations import Configuration
from rvsm.report.pictures import panels as plot
from rvsm.report.pictures.panels import W_AND_U, leftmost, lowest, omitted, panels, sizes, title

_ORDER = ("rvsm", "admm")  # the paper compares these two


def channels(found: Sequence[Configuration]) -> Figure | None:
    """Draw the sorted norms of the output channels of one layer, RVSM beside ADMM."""
    outcomes = {c: c.first.outcome for c in found if c.first.outcome is not None}
    layer = _layer(list(outcomes.values()))
    if layer is None:
        return None
    having = {c: o for c, o in outcomes.items() if layer in o.norms_w and layer in o.norms_u}
    ordered = sorted(having.items(), key=lambda one: [one[0].first.method != name for name in _ORDER])
    shown = dict(ordered[: plot.MOST])

    def draw(canvas: Canvas) -> None:
        drawn = panels(canvas, len(shown))
        for axes, (c, o) in zip(drawn, shown.items(), strict=True):
            for norms, one in zip((o.norms_w[layer], o.norms_u[layer]), W_AND_U[: 1 if c.dense else 2], strict=False):
                largest = sorted(norms, reverse=True)
                axes.plot(range(1, len(norms) + 1), largest, one.line, color=one.colour, label=one.name)
            gone, total = o.channels or _zero(o)
            note = f"{gone} of {total}\nchannels {'zero' if o.channels is None else 'left out'}"
            axes.text(0.97, 0.95, note, transform=axes.transAxes, ha="right", va="top", fontsize=8)
            title(axes, c)
        drawn[0].set_ylim(0, None)
        lowest(drawn, "channel, by size")
        leftmost(drawn, "norm")

    both = {c.first.method for c in shown} >= set(_ORDER)
    removed = _removed({c.name: o for c, o in shown.items()})
    size, phone = sizes(len(shown), height=2.2 if len(shown) > 2 else 2.8)
    return Figure(
        "channel-norms",
        f"The norms of the output channels of {layer}, the layer with the most channels, sorted from largest to"
        " smallest: the weights w before the threshold (solid), and the sparse network u after it (dashed)."
        f" A drop to zero at the right means that a channel is gone. {removed}"
        f"{' RVSM and ADMM are shown side by side, as in the paper.' if both else ''}"
        f"{' The first of several seeds is shown.' if any(len(c.runs) > 1 for c in shown) else ''}"
        f"{omitted(len(ordered))}",
        draw,
        size,
        phone,
        W_AND_U,
    )


def _layer(outcomes: Sequence[Outcome]) -> str | None:
    """Return the layer with the most channels among those that most networks have."""
    counts: dict[str, tuple[int, int]] = {}
    for o in outcomes:
        for name in o.norms_w.keys() & o.norms_u.keys():
            networks, channels_ = counts.get(name, (0, 0))
            counts[name] = (networks + 1, max(channels_, len(o.norms_w[name])))
    return max(sorted(counts), key=lambda name: counts[name], default=None)


def _removed(outcomes: Mapping[str, Outcome]) -> str:
    """Return the channels that a packed network leaves out; for older results, only those that are zero."""
    known = all(o.channels for o in outcomes.values())
    verb = "are left out of a packed network" if known else "are zero"
    found = {name: (known and o.channels) or _zero(o) for name, o in outcomes.items()}
    most = max(found, key=lambda name: found[name][0])
    removed, total = found[most]
    if not removed and known:
        return "No channel of any network can be left out entirely."
    if not removed:
        return "No network has a channel that is zero."
    reason = ": they are zero, constant, or never read" if known else ""
    return f"Over all layers, {removed} of {total} channels{f' of {most}' if len(found) > 1 else ''} {verb}{reason}."


def _zero(outcome: Outcome) -> tuple[int, int]:
    """Return how many channels of all layers are zero in u, and how many there are."""
    norms = [norm for layer in outcome.norms_u.values() for norm in layer]
    return sum(norm == 0 for norm in norms), len(norms)
