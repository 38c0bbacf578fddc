"""Runs that differ in their seed only are one experiment; the experiments of one file belong together."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from typing import Any

from rvsm.report.numbers import Mean, inside
from rvsm.results.reading import Summary
from rvsm.results.store import read


@dataclass(frozen=True)
class Experiment:
    """The runs of one experiment, by seed."""

    name: str
    config: str
    runs: tuple[Summary, ...]

    @property
    def first(self) -> Summary:
        """The run that stands for the others where only one can be shown."""
        return self.runs[0]

    def mean(self, value: Callable[[Summary], float | None]) -> Mean | None:
        """Return the mean over the seeds, and their spread; None if no run has the value."""
        return Mean.of(value(run) for run in self.runs)

    def option(self, section: str, key: str) -> Any:
        """Return an option, or None."""
        return inside(self.first.options, section, key)

    @property
    def accuracy(self) -> Mean:
        """The test accuracy of u."""
        return _whole(self.mean(lambda run: run.u.accuracy))

    @property
    def sparsity(self) -> Mean:
        """The share of zeros over the sparsified weights."""
        return _whole(self.mean(lambda run: run.sparsity))

    @property
    def dense(self) -> bool:
        """Whether nothing was made sparse."""
        return self.first.method == "dense"

    @property
    def setting(self) -> str:
        """How it was trained, in a few words."""
        width = self.option("model", "width")
        network = f"{self.option('model', 'name')}{'' if width is None else f' at width {width}'}"
        return (
            f"{network}, {self.first.epochs} epochs of batches of {self.option('training', 'batch')},"
            f" {self.option('data', 'name')}"
        )


@dataclass(frozen=True)
class Collection:
    """The experiments of a file, by name; the collection has the name of the file."""

    name: str
    experiments: Mapping[str, Experiment]


def collections(files: Iterable[Path]) -> list[Collection]:
    """Read files, each of which is a collection."""
    found: dict[str, Path] = {}
    for file in files:
        if file.stem in found:
            raise ValueError(f"{found[file.stem]} and {file} have one name; rename one of them")
        found[file.stem] = file
    return [Collection(name, grouped(read(file), str(file))) for name, file in found.items()]


def grouped(summaries: Iterable[Summary], where: str = "the file") -> dict[str, Experiment]:
    """Return the experiments by name, in the order in which they came.

    Raises:
        ValueError: two runs of one name have other options, so that one of them has to go.

    """
    runs: dict[str, list[Summary]] = {}
    for summary in summaries:
        runs.setdefault(summary.name, []).append(summary)
        configs = {run.config for run in runs[summary.name]}
        if len(configs) > 1:
            raise ValueError(
                f"{where} has runs called {summary.name} with different options ({', '.join(sorted(configs))});"
                " remove"
                " the lines of one of them, or collect it into another file"
            )
    return {
        name: Experiment(name, listed[0].config, tuple(sorted(listed, key=lambda run: run.seed)))
        for name, listed in runs.items()
    }


@dataclass(frozen=True)
class Difference:
    """How far apart two means are, in points.

    >>> Difference.of(Mean(0.93, None, 1), Mean(0.928, None, 1))
    Difference(points=0.2, spread=None)
    >>> Difference.of(Mean(0.93, None, 1), Mean(0.928, None, 1)).told_apart
    False
    """

    points: float
    spread: float | None

    @classmethod
    def of(cls, one: Mean, other: Mean) -> "Difference":
        """Return the first minus the second."""
        spread = None if one.std is None or other.std is None else 100 * hypot(one.std, other.std)
        return cls(round(100 * (one.mean - other.mean), 4), spread)

    @property
    def told_apart(self) -> bool:
        """Whether it is more than chance may do: than the seeds spread, or half a point if there is but one."""
        return abs(self.points) > self.spread if self.spread is not None else abs(self.points) >= UNKNOWN_SPREAD

    def __str__(self) -> str:
        said = f"{self.points:+.2f} points".replace("-", "−")
        if self.spread is not None:
            said += f" (seeds spread by {self.spread:.2f})"
        if self.told_apart:
            return said
        return f"{said}, not told apart{' by one seed' if self.spread is None else ''}"


UNKNOWN_SPREAD = 0.5
"""Points of accuracy below which two single runs are not told apart."""


def _whole(mean: Mean | None) -> Mean:
    assert mean is not None  # every run has it
    return mean
