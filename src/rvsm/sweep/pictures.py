"""The pictures of a sweep: the fronts, the importance of the parameters, and a slice along each of them."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rvsm.pages import Figure, Key
from rvsm.report.pictures.panels import MOST, NARROW, WIDE, label, leftmost, panels, power, sizes, unhidden
from rvsm.sweep.goals import GOALS
from rvsm.sweep.results import Results, Trial
from rvsm.sweep.space import Choices, Parameter
from rvsm.sweep.worker import shown

_KNEE = "C1"


def fronts(results: Results) -> Figure | None:
    """Draw the accuracy against each of the other goals, with the front and its knee; None without two points."""
    others = [
        goal
        for goal in ("sparsity", "multiplications", "speed")
        if len({t.measures[goal] for t in results.finished if {goal, "accuracy"} <= t.measures.keys()}) > 1
    ]
    if not others:
        return None

    def draw(canvas: Canvas) -> None:
        drawn = panels(canvas, len(others), width=2.7, sharex=False)
        for axes, goal in zip(drawn, others, strict=True):
            _front(axes, results, goal)
        leftmost(drawn, f"{GOALS['accuracy'].title}, %")

    keys = [Key("trial", "C0", "", "o"), Key("front", "C6", "-"), Key("knee of the front", _KNEE, "", "*")]
    return Figure(
        "fronts",
        "Each point is a finished trial: up and to the right is better. The line joins the trials that no other trial"
        " beats in both directions. The star is the knee of this front: with both axes scaled to the front, it is"
        " farthest above the line that joins the ends.",
        draw,
        *sizes(len(others), height=3.3, width=2.7, extra=0.2),
        keys,
    )


def importances(found: Mapping[str, Mapping[str, float]]) -> Figure | None:
    """Draw the importance of each parameter for each goal as bars; None if it is not known."""
    if not found:
        return None
    names = list(next(iter(found.values())))

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        thickness = 0.8 / len(found)
        for i, parts in enumerate(found.values()):
            for row, name in enumerate(names):
                at, share = row + (i - (len(found) - 1) / 2) * thickness, 100 * parts.get(name, 0.0)
                axes.barh(at, share, 0.9 * thickness, color=f"C{i}")
                axes.annotate(
                    f"{share:.0f} %", (share, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5
                )
        axes.set_yticks(range(len(names)), [label(name, 30) for name in names])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_axisbelow(True)
        axes.set_xlim(0, 112)
        axes.set_xlabel("share of the importance, %")

    return Figure(
        "importances",
        "How much the values of a parameter decide whether a trial is among the best tenth (PED-ANOVA). With few"
        " trials, this is a rough estimate.",
        draw,
        (WIDE, 0.9 + 0.45 * len(names) * (0.6 + 0.4 * len(found))),
        (NARROW, 0.9 + 0.45 * len(names) * (0.6 + 0.4 * len(found))),
        [Key(GOALS[goal].title, f"C{i}", filled=True) for i, goal in enumerate(found)],
    )


def slices(results: Results, goal: str) -> Figure | None:
    """Draw a goal against each parameter; None without two finished trials."""
    space = results.definition.space[:MOST]
    known = [t for t in results.finished if t.values.keys() >= {p.name for p in space}]
    if len(known) < 2:
        return None
    unit = GOALS[goal].unit

    def draw(canvas: Canvas) -> None:
        drawn = panels(canvas, len(space), width=2.1, sharex=False)
        for axes, parameter in zip(drawn, space, strict=True):
            _slice(axes, parameter, known, goal)
        leftmost(drawn, f"{GOALS[goal].title}, {unit}")

    return Figure(
        f"slices-{goal}",
        f"The {GOALS[goal].title} of each finished trial against the value of each parameter; later trials are more"
        " solid.",
        draw,
        *sizes(len(space), height=2.6, width=2.1, extra=0.2),
    )


def _front(axes: Axes, results: Results, goal: str) -> None:
    pair = ("accuracy", goal)
    known = [t for t in results.finished if all(name in t.measures for name in pair)]
    best, knee = results.front(pair), results.knee(pair)
    line = sorted({_at(t, goal) for t in best})
    axes.plot([x for x, _ in line], [y for _, y in line], color="C6", linewidth=1.0, alpha=0.7)
    for trial in known:
        x, y = _at(trial, goal)
        marker, colour, size = ("*", _KNEE, 15) if trial is knee else ("o", "C0", 6)
        on_front = trial in best
        axes.plot(
            x,
            y,
            marker,
            color=colour,
            markersize=size,
            alpha=1.0 if on_front else 0.55,
            zorder=4 if trial is knee else 3 if on_front else 2,
            label=unhidden(f"trial {trial.number}{', the knee' * (trial is knee)}: {shown(trial.values)}"),
        )
    axes.set_xlabel(f"{GOALS[goal].title}, {GOALS[goal].unit}")
    axes.margins(0.08, 0.1)


def _at(trial: Trial, goal: str) -> tuple[float, float]:
    return GOALS[goal].factor * trial.measures[goal], GOALS["accuracy"].factor * trial.measures["accuracy"]


def _slice(axes: Axes, parameter: Parameter, known: Sequence[Trial], goal: str) -> None:
    places = {word: i for i, word in enumerate(parameter.words)} if isinstance(parameter, Choices) else {}
    first, last = known[0].number, max(known[-1].number, known[0].number + 1)
    for trial in known:
        value = trial.values[parameter.name]
        axes.plot(
            places.get(value, value),
            GOALS[goal].factor * trial.measures[goal],
            "o",
            color="C0",
            markersize=5,
            alpha=0.4 + 0.6 * (trial.number - first) / (last - first),
            label=unhidden(f"trial {trial.number}: {shown(trial.values)}"),
        )
    axes.set_xlabel(label(parameter.name, 30))
    axes.margins(0.1, 0.1)
    if isinstance(parameter, Choices):
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_xticks(range(len(places)), [label(word, 12) for word in places])
    elif parameter.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=parameter.whole))
