"""A run's folder, of which this is the only reader and writer.

``config.toml`` says what was asked, ``about.json`` where it ran, ``metrics.jsonl`` how it went (a line for each look at
the validation images), ``checkpoints/`` where it can go on, ``model.safetensors`` and ``result.json`` what came of it.
"""

import json
import os
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rvsm.files import remove_leftovers, write_text
from rvsm.records import checkpoint
from rvsm.records.reading import parse_json, parse_toml, read_table, read_text
from rvsm.records.result import check_result
from rvsm.records.tree import Tree
from rvsm.records.weights import load_weights, save_weights

_KEPT = 2  # checkpoints: the newest, and one before it should that be damaged


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder: a second process that wants it is refused. The system lets go of it when a process dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another process is training in {folder}; wait for it, or stop it") from None
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to: {error.strerror or error}; give access to it, or another folder"
        ) from None
    try:
        for place in (folder, folder / "checkpoints"):
            remove_leftovers(place)
        yield
    finally:
        lock.release()


class Run:
    """A folder that holds one training.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = Run.create(Path(folder.name, "a"), config="seed = 0", about={})
    >>> run.append({"step": 10, "loss": 2.3})
    >>> Run(run.folder).metrics()
    [{'step': 10, 'loss': 2.3}]
    >>> run.status
    'unfinished'
    >>> folder.cleanup()

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "config.toml").is_file():
            there = "has no config.toml" if folder.is_dir() else "does not exist"
            raise ValueError(f"{folder} is not a run's folder: it {there}; give a folder that rvsm train made")

    @classmethod
    def create(cls, folder: Path, *, config: str, about: Mapping[str, Any]) -> "Run":
        """Make the folder; its config.toml comes last, so that a folder with one is whole."""
        if (folder / "config.toml").exists():
            raise ValueError(f"{folder} already holds a run; resume it, or give another folder")
        if found := [name for name in ("metrics.jsonl", "result.json") if (folder / name).exists()] or [
            path.name for path in (folder / "checkpoints").glob("step-*")
        ]:
            raise ValueError(
                f"{folder} holds {found[0]} of a run whose config.toml is gone; put that back, or give another folder"
            )
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_text(_json(about, indent=1), folder / "about.json")
        write_text(config, folder / "config.toml")
        return cls(folder)

    # What was asked, and where

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    def config(self) -> dict[str, Any]:
        """Return the configuration as a table."""
        file = self.folder / "config.toml"
        text = read_text(file) or ""
        try:
            return parse_toml(text)
        except ValueError as error:
            raise ValueError(f"{file} is damaged: {error}") from None

    def about(self) -> dict[str, Any]:
        """Return where and with what it was run."""
        return read_table(self.folder / "about.json") or {}

    # How it went

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(_json(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics; a line that a kill cut short is left out."""
        return self.metrics_and_damage()[0]

    def metrics_and_damage(self) -> tuple[list[dict[str, Any]], int]:
        """Return the metrics, and how many lines were left out because they cannot be read."""
        records, damaged = [], 0
        for line in (read_text(self.folder / "metrics.jsonl", errors="replace") or "").split("\n"):
            if not line.strip():
                continue
            try:
                record = parse_json(line)
            except ValueError:
                record = None
            if isinstance(record, dict):
                records.append(record)
            else:
                damaged += 1
        return records, damaged

    def rewind(self, step: int) -> None:
        """Forget what comes after a step, because the training goes on from there.

        Metrics are removed. Checkpoints can only be damaged ones: they are put aside, since one that counts as the
        newest would be kept in place of those to come.
        """
        for path in self.checkpoints():
            if _age(path) > _age(self._checkpoint(step)):
                path.replace(path.with_name(f"{path.name}.damaged"))
        kept = [record for record in self.metrics() if _is_before(record.get("step"), step)]
        write_text("".join(_json(record) + "\n" for record in kept), self.folder / "metrics.jsonl")

    # Where it can go on

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints, oldest first."""
        found = (self.folder / "checkpoints").glob("step-*.safetensors")
        return sorted(found, key=_age)

    def save(self, step: int, state: Tree) -> Path:
        """Write a checkpoint and remove those that are no longer needed."""
        path = self._checkpoint(step)
        checkpoint.save(state, path)
        for old in self.checkpoints()[:-_KEPT]:
            old.unlink(missing_ok=True)
        return path

    def newest(self) -> tuple[Tree | None, list[str]]:
        """Return the newest checkpoint that is whole, if there is one, and what was wrong with newer ones."""
        complaints: list[str] = []
        for path in reversed(self.checkpoints()):
            try:
                return checkpoint.load(path), complaints
            except checkpoint.DamagedError as error:
                complaints.append(str(error))
        return None, complaints

    def _checkpoint(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"step-{step:09d}.safetensors"

    # What came of it

    def finish(self, weights: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Write the final weights, then the result, whose presence says that the run is finished."""
        save_weights(weights, self.folder / "model.safetensors")
        write_text(_json(result, indent=1), self.folder / "result.json")
        for path in self.checkpoints():
            path.unlink(missing_ok=True)

    def result(self, *needed: str) -> dict[str, Any] | None:
        """Return the result, which must have all that is needed, of its kind; None if the run is not finished."""
        file = self.folder / "result.json"
        again = "remove the file and resume the run to have it again"
        try:
            found = read_table(file)
        except ValueError as error:
            raise ValueError(f"{error}; {again}") from None
        try:
            check_result({} if found is None else found, () if found is None else needed)
        except ValueError as error:
            raise ValueError(f"{file} is damaged: {error}; {again}") from None
        return found

    def weights(self) -> dict[str, Any]:
        """Return the final weights, and what else the model's state holds."""
        return load_weights(self.folder / "model.safetensors")

    def file_bytes(self) -> int | None:
        """Return the size of the file of the final weights, if it is there."""
        file = self.folder / "model.safetensors"
        return file.stat().st_size if file.is_file() else None

    def save_runtime(self, record: Mapping[str, Any]) -> None:
        """Keep what was measured of the packed network."""
        write_text(_json(record, indent=1), self.folder / "runtime.json")

    def runtime(self) -> dict[str, Any] | None:
        """Return what was measured of the packed network, if it was packed."""
        return read_table(self.folder / "runtime.json")

    @property
    def status(self) -> str:
        """The word "finished" or "unfinished"."""
        return "unfinished" if self.result() is None else "finished"


def folder_of(runs: Path, name: str, seed: int) -> Path:
    """Return where the run of a name and a seed lives; a name may hold any characters.

    >>> folder_of(Path("runs"), "RVSM ℓ0, 90 % asked", 1).as_posix()
    'runs/rvsm-l0-90-asked-s1'
    """
    plain = unicodedata.normalize("NFKC", name).lower()
    words = "".join(c if c.isalnum() or c in "._-" else " " for c in plain).split()
    whole = "-".join(words).strip(".-").encode()
    return runs / f"{whole[:100].decode(errors='ignore') or 'run'}-s{seed}"  # file systems count bytes


def _age(checkpoint: Path) -> tuple[int, str]:
    """Return what orders checkpoints by their step, of whatever length its number is."""
    return len(checkpoint.name), checkpoint.name


def _is_before(found: Any, step: int) -> bool:
    """Return whether a record's step is known and not after another one."""
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= step


def _json(record: Mapping[str, Any], indent: int | None = None) -> str:
    r"""Return a record as text that UTF-8 can hold, so that nothing that was measured is lost for a name.

    A file's name may have bytes that are not UTF-8, which Python keeps as halves of characters; JSON escapes them.

    >>> _json({"class": "caf\udce9 ℓ0"})
    '{"class": "caf\\udce9 ℓ0"}'
    """
    return json.dumps(dict(record), indent=indent, ensure_ascii=False).encode(errors="backslashreplace").decode()
