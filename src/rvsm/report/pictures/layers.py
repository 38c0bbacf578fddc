"""The final density of each layer."""

from collections.abc import Sequence

from matplotlib.figure import Figure as Canvas

from rvsm.pages import Figure
from rvsm.report.configurations import Configuration
from rvsm.report.pictures import panels as plot
from rvsm.report.pictures.panels import colour, label, lowest, omitted, panels, sizes, title

_ROW = 0.19  # inches for a layer
_MOST_LAYERS = 60


def layers(found: Sequence[Configuration]) -> Figure | None:
    """Draw the fraction of weights left in each layer, with a panel for each sparse configuration."""
    of = {c: c.densities for c in found}
    sparse = {c: table for c, table in of.items() if table and min(table.values()) < 1}
    shown = dict(list((sparse or {c: table for c, table in of.items() if table}).items())[: plot.MOST])
    if not shown:
        return None
    names = list(dict.fromkeys(name for table in shown.values() for name in table))
    drawn_names = names[:_MOST_LAYERS]
    crowded = max(map(len, names)) > 20 and all(name.endswith(".weight") for name in names)
    shared = ".weight" if crowded else ""  # carries no information, and takes up space
    shown_names = [label(name.removesuffix(shared), 34) for name in drawn_names]

    def draw(canvas: Canvas) -> None:
        drawn = panels(canvas, len(shown), width=1.9)
        for axes, (c, table) in zip(drawn, shown.items(), strict=True):
            places = [i for i, name in enumerate(drawn_names) if name in table]
            values = [100 * table[drawn_names[i]] for i in places]
            axes.barh(places, values, color=colour(c), height=0.72)
            for place, value in zip(places, values, strict=True):
                axes.text(value + 2, place, f"{value:.3g}", va="center", fontsize=7.5)
            title(axes, c)
            axes.grid(visible=False, axis="y")
            axes.set_axisbelow(True)
            axes.tick_params(axis="y", labelsize=8)
        drawn[0].set_yticks(range(len(drawn_names)), shown_names)
        drawn[0].set(ylim=(len(drawn_names) - 0.4, -0.6), xlim=(0, 125), xticks=(0, 50, 100))
        lowest(drawn, "weights left, %")

    every = [
        (table[name], f"{name} of {c.name}" if len(shown) > 1 else name) for c, table in shown.items() for name in table
    ]
    least, most = min(every, key=lambda one: one[0]), max(every, key=lambda one: one[0])
    height = max(_ROW * len(drawn_names), 0.6) + 0.45
    size, phone = sizes(len(shown), height=height, width=1.9, extra=0.3)
    left_out = [c.name for c in found if of[c] and c not in sparse] if sparse else []
    return Figure(
        "density-by-layer",
        "The fraction of nonzero weights in each layer, from the input at the top to the output at the bottom."
        f" The sparsest layer is {least[1]}, which keeps {100 * least[0]:.3g} %; the densest is {most[1]}, with"
        f" {100 * most[0]:.3g} %."
        f"{' Values are means over the seeds.' if any(len(c.outcomes) > 1 for c in shown) else ''}"
        f"{' Not drawn, because no weights are zero: ' + ', '.join(left_out) + '.' if left_out else ''}"
        f"{f' Only the first {_MOST_LAYERS} of {len(names)} layers are drawn.' if len(names) > _MOST_LAYERS else ''}"
        f"{omitted(len(sparse))}",
        draw,
        size,
        phone,
    )
