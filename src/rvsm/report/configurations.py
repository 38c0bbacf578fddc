"""Group runs that differ only in their seed."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rvsm.config.config import OF_THE_MACHINE, fingerprint, flat
from rvsm.records import Evaluation, Outcome, Record, Run
from rvsm.records.values import clean
from rvsm.report.statistics import Mean

_ELSEWHERE = {"training": OF_THE_MACHINE["training"]}  # but not the path of the images, which may hold others

Series = list[tuple[float, float]]
"""Pairs of an epoch and a value."""


def _mean(value: Callable[[Outcome], float | None]) -> "cached_property[Mean]":
    """Return a property of a configuration: the mean of a value of its results."""
    return cached_property(lambda configuration: configuration.mean(value))


@dataclass(frozen=True, eq=False)
class Configuration:
    """The runs of one configuration, with the means over their seeds."""

    name: str  # unique in a report
    runs: tuple[Record, ...]  # by seed
    number: int = 0  # the position in the report, which decides how it is drawn

    @property
    def first(self) -> Record:
        """The run that is shown if there is room for only one: the first finished run."""
        return next((run for run in self.runs if run.outcome is not None), self.runs[0])

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The results of the finished runs."""
        return [run.outcome for run in self.runs if run.outcome is not None]

    @property
    def seeds(self) -> int:
        """The number of finished runs, each with its own seed."""
        return len(self.outcomes)

    @property
    def unfinished(self) -> int:
        """The number of unfinished runs."""
        return len(self.runs) - len(self.outcomes)

    @property
    def dense(self) -> bool:
        """Whether nothing was made sparse."""
        return self.first.method == "dense"

    def option(self, section: str, key: str) -> Any:
        """Return an option, or None."""
        return self.first.option(section, key)

    def mean(self, value: Callable[[Outcome], float | None]) -> Mean:
        """Return the mean over the finished runs that have the value."""
        return Mean.of(map(value, self.outcomes))

    accuracy_w = _mean(lambda o: o.w.accuracy)  # on the test images, of the weights w at the end of training
    accuracy_u = _mean(lambda o: o.u.accuracy)  # on the test images, of the sparse network u
    sparsity = _mean(lambda o: o.sparsity)
    sparsity_of_all = _mean(lambda o: o.sparsity_of_all)
    multiplications_saved = _mean(lambda o: o.multiplications_saved)
    nonzeros = _mean(lambda o: o.nonzeros)
    minutes = _mean(lambda o: o.minutes)
    packed_bytes = _mean(lambda o: o.runtime.file_bytes if o.runtime else None)  # the size of the packed file

    @property
    def speedup(self) -> Mean:
        """How many times faster the packed network runs than the original in the fastest other engine.

        Unknown if the runs were measured in different ways, since their mean would be meaningless.
        """
        timed = [(o.speedup, o.runtime) for o in self.outcomes if o.speedup is not None]
        ways = {(runtime and runtime.largest_batch, runtime and runtime.threads) for _, runtime in timed}
        return Mean.of(speedup for speedup, _ in timed if len(ways) == 1)

    @cached_property
    def densities(self) -> dict[str, float]:
        """The fraction of weights left in each layer, as a mean over the seeds."""
        names = dict.fromkeys(name for o in self.outcomes for name in o.layers)
        return {name: Mean.of(o.layers[name].density for o in self.outcomes if name in o.layers).mean for name in names}

    def series(self, value: Callable[[Evaluation], float | None]) -> list[Series]:
        """Return a quantity against the epoch, for each run that has it."""
        found = [[(e.epoch, v) for e in run.evaluations if (v := value(e)) is not None] for run in self.runs]
        return [series for series in found if series]


def mean_series(series: Sequence[Series]) -> Series:
    """Return the mean at the epochs that all series have, so that it does not jump where a run ends.

    >>> mean_series([[(1, 0.5), (2, 0.7)], [(1, 0.6)]])
    [(1, 0.55)]
    """
    if not series:
        return []
    tables = [dict(one) for one in series]
    common = [epoch for epoch, _ in series[0] if all(epoch in table for table in tables)]
    return [(epoch, sum(table[epoch] for table in tables) / len(tables)) for epoch in common]


def configurations(runs: Sequence[Run]) -> tuple[list[Configuration], list[str]]:
    """Group runs by configuration, in the given order; also return notes on what was left out or unreadable."""
    groups: dict[tuple[str, str], list[Record]] = {}
    notes: list[str] = []
    for run in {run.folder.resolve(): run for run in runs}.values():
        record = Record.of_run(run)
        notes += [f"{record.folder}: {complaint}" for complaint in record.complaints]
        group = groups.setdefault((record.name, _fingerprint(record)), [])
        twin = next((i for i, other in enumerate(group) if other.seed == record.seed), None)
        if twin is None or record.seed is None:
            group.append(record)
            continue
        if group[twin].outcome is None and record.outcome is not None:
            group[twin], record = record, group[twin]
        notes.append(
            f"{record.folder} is left out: {group[twin].folder} has the same configuration and seed, and counting"
            " both would make the spread too small"
        )
    found = [
        Configuration(group[0].name, tuple(sorted(group, key=lambda r: (r.seed is None, r.seed or 0))), number)
        for number, group in enumerate(groups.values())
    ]
    return _distinguished(found), notes


def option_strings(c: Configuration) -> dict[str, str]:
    """Return the options as strings, by "section.key"."""
    return {clean(key): _string(value) for key, value in flat(c.first.options).items()}


def differing(group: Sequence[Configuration]) -> list[str]:
    """Return the options in which configurations differ."""
    tables = [option_strings(c) for c in group]
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if len({table.get(key) for table in tables}) > 1]


def _distinguished(found: list[Configuration]) -> list[Configuration]:
    """Add the differing options to names that occur more than once."""
    named = []
    for c in found:
        others = [other for other in found if other.name == c.name]
        if len(others) == 1:
            named.append(c)
            continue
        options = option_strings(c)
        apart = [f"{key} {options.get(key, 'unset')}" for key in differing(others)[:2]]
        named.append(replace(c, name=f"{c.name} ({', '.join(apart)})"))
    taken = [c.name for c in named]
    return [replace(c, name=f"{c.name} {_fingerprint(c.first)}") if taken.count(c.name) > 1 else c for c in named]


def _fingerprint(record: Record) -> str:
    return fingerprint(record.options, _ELSEWHERE)


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | Mapping):
        return clean(json.dumps(value, ensure_ascii=False, default=str))
    return clean(value)
