"""What was run: options, seeds, versions and machine, so that it can be run again."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rvsm.pages import Cell, Details, Section
from rvsm.report.configurations import Configuration, differing, flat
from rvsm.report.lead import method, task
from rvsm.report.reading import Reading, clean

TITLE = "What was run"


def what_was_run(found: Sequence[Configuration], notes: Sequence[str]) -> Section:
    """Return the section: what all have in common, what differs, and everything about each, folded away."""
    readings = [r for c in found for r in c.readings]
    keys = differing(found) if len(found) > 1 else []
    common = [(k, v) for k, v in flat(found[0].first.config).items() if k not in keys]
    facts = [
        ("task", "; ".join(dict.fromkeys(task(c) for c in found))),
        ("seeds", ", ".join(dict.fromkeys("unknown" if r.seed is None else str(r.seed) for r in readings))),
        *_places(readings),
    ]
    if len(found) == 1:
        facts.insert(0, ("method", method(found[0])))
    details = []
    if keys:
        tables = [flat(c.first.config) for c in found]
        rows = [(Cell(key), *(Cell(table.get(key, "–")) for table in tables)) for key in keys]
        head = ("option", *(c.name for c in found))
        details.append(Details(f"Options in which the configurations differ ({len(keys)})", head=head, rows=rows))
    if common:
        title = "Options that all share" if len(found) > 1 else "All options"
        details.append(Details(f"{title} ({len(common)})", facts=common))
    details += [_runs(found)]
    return Section(
        TITLE,
        paragraphs=[f"Note: {note}." for note in notes],
        facts=facts,
        details=details,
    )


def _runs(found: Sequence[Configuration]) -> Details:
    head = ("run", "seed", "state", "epochs", "accuracy of u, %", "zeros, %", "minutes", "images per second")
    rows = [_run(r) for c in found for r in c.readings]
    return Details(f"Each run ({len(rows)})", head=head, rows=rows)


def _run(r: Reading) -> tuple[Cell, ...]:
    done = r.looks[-1].epoch if r.looks else 0
    speeds = [look.speed for look in r.looks if look.speed is not None]
    outcome = r.outcome
    return (
        Cell(r.folder),
        Cell("–" if r.seed is None else str(r.seed), numeric=True),
        Cell("unfinished", tone="warn") if outcome is None else Cell("finished", tone="good"),
        Cell(f"{done:g} of {r.epochs:g}", numeric=True),
        _number(None if outcome is None else outcome.u, 100),
        _number(None if outcome is None else outcome.sparsity, 100),
        _number(None if outcome is None else outcome.seconds, 1 / 60),
        _number(median(speeds) if speeds else None, 1, digits=0),
    )


def _number(value: float | None, factor: float, digits: int = 2) -> Cell:
    return Cell("–" if value is None else f"{factor * value:,.{digits}f}", numeric=True)


def _places(readings: Sequence[Reading]) -> list[tuple[str, str]]:
    """Return where the runs were made; a line has more than one value if they were made in several places."""
    tables = [_place(r.about) for r in readings]
    keys = dict.fromkeys(key for table in tables for key in table)
    return [(key, "; ".join(dict.fromkeys(table[key] for table in tables if key in table))) for key in keys]


def _place(about: Mapping[str, Any]) -> dict[str, str]:
    versions = about.get("versions")
    table = {key: clean(about[key]) for key in ("machine", "device", "threads", "precision") if key in about}
    if isinstance(versions, Mapping):
        table["versions"] = clean(", ".join(f"{name} {version}" for name, version in versions.items()))
    return table
