"""The storage that the processes of a sweep share: a SQLite file in its folder, or a database by its URL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from rvsm.records.values import COUNT
from rvsm.sweep.definition import BASE, Definition, changes

FILE = "sweep.db"
_WAIT = 60  # seconds that a process waits while others write to a SQLite file
_DEFINITION, _TRIALS = "sweep", "trials"  # the attributes of the study


def study_of(definition: Definition, folder: Path, url: str | None) -> optuna.Study:
    """Return the study of a sweep, which is created if it does not exist; one with other options is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = definition.kept()
    with FileLock(folder / "lock"):  # two processes would both create the tables
        study = optuna.create_study(
            study_name=definition.name,
            storage=_open(folder, url),
            directions=["maximize"] * len(definition.goals),
            load_if_exists=True,
        )
        if _DEFINITION not in study.user_attrs:
            study.set_user_attr(_DEFINITION, ours)
        theirs = study.user_attrs[_DEFINITION]
    if found := changes(theirs, ours):
        shown = ", ".join(found[:4]) + (" …" if len(found) > 4 else "")
        place = folder if url is None else f"the storage has {definition.name!r}, which"
        raise ValueError(
            f"{place} is a sweep with different options ({shown}); give another folder with --sweep, another --name,"
            " or the same options"
        )
    return study


def existing_study(folder: Path, url: str | None, name: str) -> optuna.Study:
    """Return the study of a sweep that exists."""
    if url is None and not (folder / FILE).is_file():
        raise ValueError(
            f"{folder} has no {FILE}; if its storage is a database, give the same --storage URL as at the start"
        )
    try:
        return optuna.load_study(study_name=name, storage=_open(folder, url))
    except KeyError:
        place = folder / FILE if url is None else hidden(url)
        raise ValueError(
            f"{place} has no sweep named {name!r}, which is the name in {folder / BASE}; restore the file"
        ) from None


def kept_definition(study: optuna.Study) -> Any:
    """Return the definition in a study, as it was kept."""
    return study.user_attrs.get(_DEFINITION)


def trials_wanted(study: optuna.Study, given: int | None, default: int) -> int:
    """Return how many trials a sweep should have: as given, or as kept by the last process that was given a number."""
    if given is not None:
        if given < 1:
            raise ValueError(f"--trials must be at least 1 but is {given}")
        study.set_user_attr(_TRIALS, given)
    return given or COUNT.at(study.user_attrs, _TRIALS) or default


def hidden(url: str) -> str:
    """Return a URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "something else"


def _open(folder: Path, url: str | None) -> RDBStorage:
    if url is None:
        # The URL is rendered with escapes, since a path may have characters that mean something in a URL, such as "?".
        file = URL.create("sqlite", database=str((folder / FILE).resolve())).render_as_string()
        return RDBStorage(file, engine_kwargs={"connect_args": {"timeout": _WAIT}})
    try:
        return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except ArgumentError:
        expected = "postgresql+psycopg://user@host/database"
        raise ValueError(f"--storage expects a URL such as {expected} but got {hidden(url)}") from None
    except ImportError as error:
        driver = getattr(error.__cause__, "name", None) or "of its driver"
        raise ValueError(f"{hidden(url)} needs the Python package {driver}, which is not installed") from None


@contextmanager
def explained(folder: Path, url: str | None) -> Iterator[None]:
    """Turn errors of the database into sentences."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = getattr(error, "orig", None) or error.__cause__ or error
        reason = " ".join(str(getattr(cause, "orig", None) or cause).split())[:300]
        place = folder / FILE if url is None else hidden(url)
        raise ValueError(f"the storage {place} cannot be used: {reason}") from None
