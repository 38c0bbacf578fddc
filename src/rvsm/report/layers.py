"""The table of layers: the shape, remaining weights, remaining multiplications and threshold of each layer."""

from collections.abc import Callable, Mapping, Sequence
from math import prod

from rvsm.pages import Cell, Details, Section
from rvsm.records import Layer, Record
from rvsm.report.configurations import Configuration
from rvsm.report.statistics import NOTHING, Mean

_HEAD = ("layer", "shape", "weights", "zeros, %", "multiplications", "of them left", "left, %", "threshold")


def layers_of(found: Sequence[Configuration], title: str) -> Section:
    """Return a section with the table of one configuration, or with collapsed tables of several."""
    tables = {c: _rows(c) for c in found}
    there = {c: rows for c, rows in tables.items() if rows}
    if not there:
        return Section(title)
    told = _told(there)
    if len(found) == 1:
        return Section(title, paragraphs=[told], head=_HEAD, rows=next(iter(there.values())))
    details = [Details(f"Layers of {c.name}", head=_HEAD, rows=rows) for c, rows in there.items()]
    return Section(title, paragraphs=[told], details=details)


def _told(there: Mapping[Configuration, Sequence[Sequence[Cell]]]) -> str:
    seeds = " Numbers are means over the seeds." if any(len(c.outcomes) > 1 for c in there) else ""
    grouped = any(c.option("groups", "name") not in (None, "element") for c in there)
    return (
        "Multiplications are counted for one image: a weight of a convolution is used at every position of its output."
        " The threshold is the last one before the zeros were fixed: smaller weights became zero"
        f"{'; if weights are grouped, it applies to the norm of a group' if grouped else ''}. A method that keeps a"
        f" fixed number of weights has no threshold.{seeds}"
    )


def _rows(c: Configuration) -> list[tuple[Cell, ...]]:
    rows = [_row(c, name) for name in c.densities]
    if len(rows) > 1:
        rows.append(_total(c))
    return rows


def _row(c: Configuration, name: str) -> tuple[Cell, ...]:
    first = next(o.layers[name] for o in c.outcomes if name in o.layers)
    density, total = c.densities[name], first.multiplications
    threshold = Mean.of(_threshold(run, name) for run in c.runs if run.outcome is not None)
    return (
        Cell(name),
        Cell("\u00a0×\u00a0".join(map(str, first.shape))),  # on one line
        _count(prod(first.shape)),
        _percent(1 - density),
        _count(total),
        _count(None if total is None else total * density),
        _percent(None if total is None else density),
        Cell(f"{threshold.mean:.3g}" if threshold else NOTHING, numeric=True),
    )


def _total(c: Configuration) -> tuple[Cell, ...]:
    """Return the sums over the listed layers; unknown if a layer is unknown."""

    def summed(value: Callable[[Layer], float | None]) -> float | None:
        sums = []
        for o in c.outcomes:
            values = [value(o.layers[name]) if name in o.layers else None for name in c.densities]
            known = [v for v in values if v is not None]
            sums.append(sum(known) if len(known) == len(values) else None)
        mean = Mean.of(sums)
        return mean.mean if mean else None

    weights, kept = summed(lambda x: prod(x.shape)), summed(lambda x: prod(x.shape) * x.density)
    total = summed(lambda x: x.multiplications)
    left = summed(lambda x: None if x.multiplications is None else x.multiplications * x.density)
    return (
        Cell("all layers", tone="plain"),
        Cell(""),
        _count(weights),
        _percent(None if kept is None or not weights else 1 - kept / weights),
        _count(total),
        _count(left),
        _percent(None if left is None or not total else left / total),
        Cell("", numeric=True),
    )


def _threshold(run: Record, name: str) -> float | None:
    """Return the last threshold of a layer outside the heal phase, in which the zeros are fixed."""
    found = [e.thresholds[name] for e in run.evaluations if e.phase != "heal" and name in e.thresholds]
    return found[-1] if found and found[-1] > 0 else None


def _count(value: float | None) -> Cell:
    return Cell(NOTHING if value is None else f"{value:,.0f}", numeric=True)


def _percent(value: float | None) -> Cell:
    return Cell(NOTHING if value is None else f"{100 * value:.2f}", numeric=True)
