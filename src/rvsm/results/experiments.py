"""Runs that differ in their seed only are one experiment; the experiments of one file belong together."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rvsm.report.numbers import Mean, inside
from rvsm.results.reading import Summary
from rvsm.results.store import by_name, read


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
    def accuracy_of_w(self) -> Mean:
        """The test accuracy of w."""
        return _whole(self.mean(lambda run: run.w.accuracy))

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


def comparable(collection: Collection) -> None:
    """Raise an error if experiments of a collection, which is one table or two, were trained on different images."""
    images: dict[str, str] = {}
    for e in collection.experiments.values():
        if e.first.images is not None:
            images.setdefault(e.first.images, e.name)
    if len(images) > 1:
        (one, first), (other, second), *_ = images.items()
        raise ValueError(
            f"{collection.name}.jsonl cannot be one table: {first} was trained on other images ({one}) than {second}"
            f" ({other}); collect the runs on one set of images into a file of their own"
        )


def grouped(summaries: Iterable[Summary], where: str = "the file") -> dict[str, Experiment]:
    """Return the experiments by name, in the order in which they came.

    Raises:
        ValueError: runs of one name differ in more than their seed, so that some have to go.

    """
    runs = by_name(summaries, where)
    return {
        name: Experiment(name, listed[0].config, tuple(sorted(listed, key=lambda run: run.seed)))
        for name, listed in runs.items()
    }


def _whole(mean: Mean | None) -> Mean:
    assert mean is not None  # every run has it
    return mean
