"""The section on what was run: options, seeds, versions and machine, so that it can be repeated."""

from collections.abc import Mapping, Sequence
from typing import Any

from rvsm.pages import Cell, Details, Section
from rvsm.records import Record
from rvsm.records.values import clean
from rvsm.report.configurations import Configuration, differing, option_strings
from rvsm.report.statistics import NOTHING
from rvsm.report.summary import method, task

_HEAD = ("run", "seed", "state", "epochs", "accuracy of u, %", "zeros, %", "minutes", "images per second")


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
    details.append(Details(f"Each run ({len(runs)})", head=_HEAD, rows=[_run(r) for r in runs]))
    return Section("What was run", paragraphs=[f"Note: {note}." for note in notes], facts=facts, details=details)


def _run(r: Record) -> tuple[Cell, ...]:
    done = r.evaluations[-1].epoch if r.evaluations else 0
    outcome = r.outcome
    return (
        Cell(r.folder),
        Cell(NOTHING if r.seed is None else str(r.seed), numeric=True),
        Cell("unfinished", tone="warn") if outcome is None else Cell("finished", tone="good"),
        Cell(f"{done:g} of {r.epochs:g}", numeric=True),
        _number(outcome.u.accuracy if outcome else None, 100),
        _number(outcome.sparsity if outcome else None, 100),
        _number(outcome.minutes if outcome else None),
        _number(r.images_per_second, digits=0),
    )


def _number(value: float | None, factor: float = 1.0, digits: int = 2) -> Cell:
    return Cell(NOTHING if value is None else f"{factor * value:,.{digits}f}", numeric=True)


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
