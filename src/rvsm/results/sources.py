"""From a line of results back to the file that it was run from."""

from dataclasses import dataclass
from pathlib import Path

from rvsm.config import config_of, differences, read_config
from rvsm.models import NotAllowedError
from rvsm.results.experiments import Collection, Experiment


@dataclass(frozen=True)
class Source:
    """The file of an experiment.

    Attributes:
        path: such as experiments/cpu/vgg16-l0.toml; None if there is none of the experiment's name.
        changes: the options in which the run differs from the file, such as "training.epochs 12 → 4".

    """

    path: str | None
    changes: tuple[str, ...] = ()


def sources(collection: Collection, folder: Path) -> dict[str, Source]:
    """Return the file of each experiment: the one of its name, in the folder of its collection if it can be.

    Args:
        collection: the experiments; its name is also that of a folder.
        folder: where the files of experiments are, in folders.

    """
    return {name: _source(e, collection.name, folder) for name, e in collection.experiments.items()}


def _source(e: Experiment, collection: str, folder: Path) -> Source:
    found = [path for path in folder.glob("**/*.toml") if path.stem == e.name]  # a name may hold any characters
    if not found:
        return Source(None)
    file = min(found, key=lambda path: (path.parent.name != collection, path))
    return Source(f"{folder.name}/{file.relative_to(folder).as_posix()}", _changes(e, file))


def _changes(e: Experiment, file: Path) -> tuple[str, ...]:
    """Return in what a run differs from its file, without what belongs to a machine."""
    try:
        asked = read_config(file)
        if asked.fingerprint() == e.config:
            return ()
        data = {**asked.data.table(), **e.first.options.get("data", {})}  # a line does not tell where its images were
        made = config_of({"name": asked.name, "seed": asked.seed, **e.first.options, "data": data})
    except NotAllowedError:
        return ("the options cannot be compared without importing the model",)
    except ValueError as error:
        return (f"the options cannot be compared ({error})",)
    return tuple(differences(asked, made, machine=False)) or ("options that there were not when it was run",)
