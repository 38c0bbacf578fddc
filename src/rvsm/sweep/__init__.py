"""Sweeps: many trainings whose options are chosen by Optuna, by any number of processes that share a storage."""

from collections.abc import Collection
from pathlib import Path

import optuna
from rich.console import Console

from rvsm.config import as_toml, read_config
from rvsm.config.settings import of_file
from rvsm.files import write_text
from rvsm.records.values import clean
from rvsm.sweep.definition import BASE, Definition
from rvsm.sweep.goals import GOALS, described
from rvsm.sweep.page import PAGE, write_page
from rvsm.sweep.results import Results, Trial
from rvsm.sweep.space import words
from rvsm.sweep.storage import existing_study, explained, kept_definition, study_of, trials_wanted
from rvsm.sweep.worker import BEAT, GRACE, Worker, shown
from rvsm.train import quoted

__all__ = ["GOALS", "TRIALS", "Definition", "Results", "Trial", "is_sweep", "join", "run", "summary", "write"]

TRIALS = 40
"""The number of trials if none is given."""
BEST = "best.toml"


def is_sweep(folder: Path) -> bool:
    """Return whether a folder holds a sweep."""
    return (folder / BASE).is_file()


def run(
    definition: Definition,
    folder: Path,
    console: Console,
    *,
    storage: str | None = None,
    trials: int | None = None,
    allow_import: Collection[str] = (),
    beat: float = BEAT,
    grace: float = GRACE,
) -> Results:
    """Begin a sweep, or join the one in the folder or storage, until all its trials are settled; write best and page.

    Args:
        definition: the sweep.
        folder: its folder on this machine, for the runs and, without a storage, for the SQLite file.
        console: where to print.
        storage: the URL of a database that processes on several machines can reach.
        trials: how many trials there should be, of all processes together.
        allow_import: the user's own models that may be imported.
        beat: seconds between two signs of life of a process.
        grace: seconds without one until a process counts as dead, and its trial is tried again.

    """
    _quiet()
    with explained(folder, storage):
        study = study_of(definition, folder, storage)
        if not is_sweep(folder):
            write_text(definition.base(), folder / BASE)
        wanted = trials_wanted(study, trials, TRIALS)
        more = {"allow_import": allow_import, "beat": beat, "grace": grace}
        worker = Worker(study, definition, folder, wanted=wanted, console=console, **more)  # type: ignore[arg-type]
        try:
            worker.work()
        finally:
            results = _written(study, definition, folder, worker.wanted, worker.allowed)
        return results


def join(
    folder: Path,
    console: Console,
    *,
    storage: str | None = None,
    trials: int | None = None,
    allow_import: Collection[str] = (),
    beat: float = BEAT,
    grace: float = GRACE,
) -> Results:
    """Join the sweep in a folder, as `run` does with the same arguments."""
    with explained(folder, storage):
        definition, _ = _existing(folder, storage, allow_import)
    more = {"storage": storage, "trials": trials, "allow_import": allow_import}
    return run(definition, folder, console, beat=beat, grace=grace, **more)  # type: ignore[arg-type]


def write(folder: Path, *, storage: str | None = None, allow_import: Collection[str] = ()) -> Results:
    """Write the page and best.toml of the sweep in a folder as it stands, without training."""
    with explained(folder, storage):
        definition, study = _existing(folder, storage, allow_import)
        wanted, size = trials_wanted(study, None, TRIALS), definition.space.size
        return _written(study, definition, folder, wanted if size is None else min(wanted, size), allow_import)


def summary(results: Results, folder: Path) -> str:
    """Return the lines at the end of the command: the best trial, how to train it again, and the page."""
    best, goals = results.knee(), results.definition.goals
    lines = []
    if best is not None:
        if len(goals) > 1:
            lines += [f"{len(results.front())} trials are on the front of {' and '.join(goals)}"]
        role = "the knee is" if len(goals) > 1 else "the best is"
        lines += [
            f"{role} trial {best.number}: {described(best.measures)}; {shown(best.values)}",
            f"train it again with: rvsm train {quoted(folder / BEST)}",
        ]
    return "\n".join([*lines, f"the page is {folder / PAGE}"])


def _existing(folder: Path, storage: str | None, allow_import: Collection[str]) -> tuple[Definition, optuna.Study]:
    _quiet()
    if not is_sweep(folder):
        raise ValueError(f"{folder} is not the folder of a sweep: it has no {BASE}; give one that rvsm sweep made")
    name = next((clean(s.value) for s in of_file(folder / BASE) if s.key == "name"), "base")
    study = existing_study(folder, storage, name)
    return Definition.of_storage(kept_definition(study), folder / BASE, allow_import=allow_import), study


def _written(
    study: optuna.Study, definition: Definition, folder: Path, wanted: int, allow_import: Collection[str]
) -> Results:
    results = Results.of(study, definition, wanted)
    text = ""
    if (best := results.knee()) is not None:
        flags = [*words(best.values), f"--name={definition.name}-{best.number}"]
        text = as_toml(read_config(folder / BASE, flags, allow_import=allow_import))
        write_text(text, folder / BEST)
    write_page(study, results, folder, text)
    return results


def _quiet() -> None:
    """Let Optuna print nothing: each trial has its line."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
