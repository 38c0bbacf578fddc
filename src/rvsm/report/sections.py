"""Sections of the page: the table of layers, and what was run, so that it can be repeated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from rvsm.pages import Cell, Details, Section
from rvsm.records import Layer, Record
from rvsm.records.values import clean
from rvsm.report.configurations import Configuration, differing, option_strings
from rvsm.report.statistics import NOTHING, Mean
from rvsm.report.summary import method, task
from rvsm.report.table import number

_LAYERS = ("layer", "shape", "weights", "zeros, %", "multiplications", "of them left", "left, %", "threshold")
_RUNS = ("run", "seed", "state", "epochs", "accuracy of u, %", "zeros, %", "minutes", "images per second")


def layers_of(found: Sequence[Configuration], title: str) -> Section:
    """Return a section with the table of one configuration, or with collapsed tables of several."""
    tables = {c: _layer_rows(c) for c in found}
    there = {c: rows for c, rows in tables.items() if rows}
    if not there:
        return Section(title)
    paragraphs = [_explanation(there)]
    if len(found) == 1:
        return Section(title, paragraphs=paragraphs, head=_LAYERS, rows=next(iter(there.values())))
    details = [Details(f"Layers of {c.name}", head=_LAYERS, rows=rows) for c, rows in there.items()]
    return Section(title, paragraphs=paragraphs, details=details)


def _explanation(there: Iterable[Configuration]) -> str:
    seeds = " Numbers are means over the seeds." if any(len(c.outcomes) > 1 for c in there) else ""
    grouped = any(c.option("groups", "name") not in (None, "element") for c in there)
    return (
        "Multiplications are counted for one image: a weight of a convolution is used at every position of its output."
        " The threshold is the last one before the zeros were fixed: smaller weights became zero"
        f"{'; if weights are grouped, it applies to the norm of a group' if grouped else ''}. A method that keeps a"
        f" fixed number of weights has no threshold.{seeds}"
    )


def _layer_rows(c: Configuration) -> list[tuple[Cell, ...]]:
    rows = [_layer_row(c, name) for name in c.densities]
    if len(rows) > 1:
        rows.append(_total(c))
    return rows


def _layer_row(c: Configuration, name: str) -> tuple[Cell, ...]:
    first = next(o.layers[name] for o in c.outcomes if name in o.layers)
    density, total = c.densities[name], first.multiplications
    threshold = Mean.of(_threshold(run, name) for run in c.runs if run.outcome is not None)
    return (
        Cell(name),
        Cell("\u00a0×\u00a0".join(map(str, first.shape))),  # on one line
        number(prod(first.shape)),
        number(1 - density, 100, 2),
        number(total),
        number(None if total is None else total * density),
        number(None if total is None else density, 100, 2),
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
        number(weights),
        number(None if kept is None or not weights else 1 - kept / weights, 100, 2),
        number(total),
        number(left),
        number(None if left is None or not total else left / total, 100, 2),
        Cell("", numeric=True),
    )


def _threshold(run: Record, name: str) -> float | None:
    """Return the last threshold of a layer outside the heal phase, in which the zeros are fixed."""
    found = [e.thresholds[name] for e in run.evaluations if e.phase != "heal" and name in e.thresholds]
    return found[-1] if found and found[-1] > 0 else None


def what_was_run(found: Sequence[Configuration], notes: Sequence[str]) -> Section:
    """Return the section: common options, differing options, and collapsed details of each run."""
    runs = [run for c in found for run in c.runs]
    keys = differing(found) if len(found) > 1 else []
    common = [(k, v) for k, v in option_strings(found[0]).items() if k not in keys]
    facts = [
        ("task", "; ".join(dict.fromkeys(task(c) for c in found))),
        ("seeds", ", ".join(dict.fromkeys("unknown" if r.seed is None else str(r.seed) for r in runs))),
        *_places(runs),
    ]
    if len(found) == 1:
        facts.insert(0, ("method", method(found[0])))
    details = []
    if keys:
        tables = [option_strings(c) for c in found]
        rows = [(Cell(key), *(Cell(table.get(key, NOTHING)) for table in tables)) for key in keys]
        head = ("option", *(c.name for c in found))
        details.append(Details(f"Options in which the configurations differ ({len(keys)})", head=head, rows=rows))
    if common:
        title = "Common options" if len(found) > 1 else "All options"
        details.append(Details(f"{title} ({len(common)})", facts=common))
    details.append(Details(f"Each run ({len(runs)})", head=_RUNS, rows=[_run_row(r) for r in runs]))
    return Section("What was run", paragraphs=[f"Note: {note}." for note in notes], facts=facts, details=details)


def _run_row(r: Record) -> tuple[Cell, ...]:
    done = r.evaluations[-1].epoch if r.evaluations else 0
    outcome = r.outcome
    return (
        Cell(r.folder),
        Cell(NOTHING if r.seed is None else str(r.seed), numeric=True),
        Cell("unfinished", tone="warn") if outcome is None else Cell("finished", tone="good"),
        Cell(f"{done:g} of {r.epochs:g}", numeric=True),
        number(outcome.u.accuracy if outcome else None, 100, 2),
        number(outcome.sparsity if outcome else None, 100, 2),
        number(outcome.minutes if outcome else None, digits=2),
        number(r.images_per_second),
    )


def _places(runs: Sequence[Record]) -> list[tuple[str, str]]:
    """Return the machines and versions; a line has more than one value if the runs differ."""
    tables = [_place(r.about) for r in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    return [(key, "; ".join(dict.fromkeys(table[key] for table in tables if key in table))) for key in keys]


def _place(about: Mapping[str, Any]) -> dict[str, str]:
    versions = about.get("versions")
    table = {key: clean(about[key]) for key in ("machine", "device", "threads", "precision") if key in about}
    if isinstance(versions, Mapping):
        table["versions"] = clean(", ".join(f"{name} {version}" for name, version in versions.items()))
    return table
