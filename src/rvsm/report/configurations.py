"""Runs that differ in their seed only belong together."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rvsm.config.config import OF_THE_MACHINE, fingerprint
from rvsm.records import Run
from rvsm.report.reading import Look, Outcome, Reading, clean, read

_ELSEWHERE = {"training": OF_THE_MACHINE["training"]}  # but not the path of images: another may hold other images

Series = list[tuple[float, float]]
"""Pairs of an epoch and a value."""


@dataclass(frozen=True, eq=False)
class Configuration:
    """The runs of one configuration.

    Attributes:
        name: its name, which no other configuration of the report has.
        number: its place in the report, which decides how it is drawn.
        readings: its runs, by seed.

    """

    name: str
    number: int
    readings: tuple[Reading, ...]

    @property
    def first(self) -> Reading:
        """The run that stands for the others where only one can be shown: the first that is finished."""
        return next((r for r in self.readings if r.outcome is not None), self.readings[0])

    @property
    def outcomes(self) -> list[Outcome]:
        """The results of those that are finished."""
        return [r.outcome for r in self.readings if r.outcome is not None]

    @property
    def unfinished(self) -> int:
        """The number of those that are not."""
        return len(self.readings) - len(self.outcomes)

    @property
    def dense(self) -> bool:
        """Whether nothing was made sparse."""
        return self.first.method == "dense"

    def series(self, value: Callable[[Look], float | None]) -> list[Series]:
        """Return a quantity against the epoch, for each run that has it."""
        found = [[(look.epoch, v) for look in r.looks if (v := value(look)) is not None] for r in self.readings]
        return [series for series in found if series]


def mean_series(series: Sequence[Series]) -> Series:
    """Return the mean at the epochs that all have, so that it does not jump where a run ends.

    >>> mean_series([[(1, 0.5), (2, 0.7)], [(1, 0.6)]])
    [(1, 0.55)]
    """
    if not series:
        return []
    tables = [dict(one) for one in series]
    common = [epoch for epoch, _ in series[0] if all(epoch in table for table in tables)]
    return [(epoch, sum(table[epoch] for table in tables) / len(tables)) for epoch in common]


def configurations(runs: Sequence[Run]) -> tuple[list[Configuration], list[str]]:
    """Group runs by configuration, in the order in which they came, and say what was left out or could not be read."""
    groups: dict[tuple[str, str], list[Reading]] = {}
    notes: list[str] = []
    folders = set()
    for run in runs:
        if (folder := run.folder.resolve()) in folders:
            continue
        folders.add(folder)
        reading = read(run)
        notes += [f"{reading.folder}: {complaint}" for complaint in reading.complaints]
        group = groups.setdefault((reading.name, fingerprint(reading.config, _ELSEWHERE)), [])
        twin = next((i for i, other in enumerate(group) if other.seed == reading.seed), None)
        if twin is None or reading.seed is None:
            group.append(reading)
            continue
        if group[twin].outcome is None and reading.outcome is not None:
            group[twin], reading = reading, group[twin]
        notes.append(
            f"{reading.folder} is left out: {group[twin].folder} has the same configuration and seed, and to count"
            " both would make the spread too small"
        )
    found = [
        Configuration(readings[0].name, number, tuple(sorted(readings, key=lambda r: (r.seed is None, r.seed or 0))))
        for number, readings in enumerate(groups.values())
    ]
    return _with_names_of_their_own(found), notes


def flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the options as "section.key" and a text; name and seed are left out."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found.update({clean(f"{key}.{k}"): _text(v) for k, v in value.items()})
        elif key not in ("name", "seed"):
            found[clean(key)] = _text(value)
    return found


def differing(group: Sequence[Configuration]) -> list[str]:
    """Return the options in which configurations differ."""
    tables = [flat(c.first.config) for c in group]
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if len({table.get(key) for table in tables}) > 1]


def _with_names_of_their_own(found: list[Configuration]) -> list[Configuration]:
    """Add to names that occur twice what sets them apart."""
    named = []
    for c in found:
        others = [other for other in found if other.name == c.name]
        if len(others) == 1:
            named.append(c)
            continue
        options = flat(c.first.config)
        apart = [f"{key} {options.get(key, 'unset')}" for key in differing(others)[:2]]
        named.append(replace(c, name=f"{c.name} ({', '.join(apart)})"))
    taken = [c.name for c in named]
    return [
        replace(c, name=f"{c.name} {fingerprint(c.first.config, _ELSEWHERE)}") if taken.count(c.name) > 1 else c
        for c in named
    ]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | Mapping):
        return clean(json.dumps(value, ensure_ascii=False, default=str))
    return clean(value)
