"""The experiments of a results file, and their configuration files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rvsm.collect import by_name, read
from rvsm.config import config_of, differences, read_config
from rvsm.models import NotAllowedError
from rvsm.records import Record
from rvsm.report import Configuration

Experiments = Mapping[str, Configuration]
"""Experiments by name; runs that differ only in their seed are one experiment."""


@dataclass(frozen=True)
class Collection:
    """The experiments of a results file, which gives the collection its name."""

    name: str
    experiments: Experiments


@dataclass(frozen=True)
class Source:
    """The file of an experiment."""

    path: str | None  # such as experiments/cpu/vgg16-l0.toml; None if no file has the experiment's name
    changes: tuple[str, ...] = ()  # options that differ between run and file, such as "training.epochs 12 → 4"


def collections(files: Iterable[Path]) -> list[Collection]:
    """Read files; each is a collection."""
    found: dict[str, Path] = {}
    for file in files:
        if file.stem in found:
            raise ValueError(f"{found[file.stem]} and {file} have the same name; rename one of them")
        found[file.stem] = file
    return [Collection(name, grouped(read(file), str(file))) for name, file in found.items()]


def grouped(records: Iterable[Record], where: str = "the file") -> dict[str, Configuration]:
    """Return the experiments by name, in the order of the records.

    Raises:
        ValueError: runs of the same name differ in more than their seed, so some must be removed.

    """
    return {
        name: Configuration(name, tuple(sorted(runs, key=lambda run: run.seed or 0)))
        for name, runs in by_name(records, where).items()
    }


def comparable(collection: Collection) -> None:
    """Raise an error if the experiments of a collection were trained on different images: they share tables."""
    images: dict[str, str] = {}
    for e in collection.experiments.values():
        if (found := e.outcomes[0].images) is not None:
            images.setdefault(found, e.name)
    if len(images) > 1:
        (one, first), (other, second), *_ = images.items()
        raise ValueError(
            f"{collection.name}.jsonl cannot be one table: {first} and {second} were trained on different images"
            f" ({one} and {other}); collect the runs on each set of images into a separate file"
        )


def setting(e: Configuration) -> str:
    """Return a short description of how an experiment was trained."""
    width = e.option("model", "width")
    network = f"{e.option('model', 'name')}{'' if width is None else f' at width {width}'}"
    epochs, batch, data = e.outcomes[0].epochs, e.option("training", "batch"), e.option("data", "name")
    return f"{network}, {epochs} epochs of batches of {batch}, {data}"


def sources(collection: Collection, folder: Path) -> dict[str, Source]:
    """Return the file of each experiment: the one below a folder that has its name, preferably that of its collection.

    The files of a collection are in a folder of the same name.
    """
    return {name: _source(e, collection.name, folder) for name, e in collection.experiments.items()}


def _source(e: Configuration, collection: str, folder: Path) -> Source:
    found = [path for path in folder.glob("**/*.toml") if path.stem == e.name]  # a name may hold any characters
    if not found:
        return Source(None)
    file = min(found, key=lambda path: (path.parent.name != collection, path))
    return Source(f"{folder.name}/{file.relative_to(folder).as_posix()}", _changes(e.first, file))


def _changes(run: Record, file: Path) -> tuple[str, ...]:
    """Return the differences between a run and its file, except the options of the machine."""
    try:
        target = read_config(file)
        if target.fingerprint() == run.fingerprint:
            return ()
        data = {**target.data.table(), **run.options.get("data", {})}  # a line does not record the path of its images
        made = config_of({"name": target.name, "seed": target.seed, **run.options, "data": data})
    except NotAllowedError:
        return ("the options cannot be compared without importing the model",)
    except ValueError as error:
        return (f"the options cannot be compared ({error})",)
    return tuple(differences(target, made, machine=False)) or ("options that did not exist when it was run",)
