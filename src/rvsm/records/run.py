"""The folder of a run; only this module reads and writes it.

``config.toml`` has the options, ``about.json`` the machine, ``profile.json`` the times of the layers if the target is a
time, ``metrics.jsonl`` a line for each evaluation on the
validation images, ``checkpoints/`` the states from which the run can be resumed, ``model.safetensors`` and
``result.json`` the result.
"""

import json
import os
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rvsm.files import remove_leftovers, write_text
from rvsm.records import states
from rvsm.records.outcome import check_result
from rvsm.records.reading import parse, read_table, read_text
from rvsm.records.states import DamagedError, Tree, load_weights, save_weights
from rvsm.records.values import COUNT
from rvsm.timing import Profile

_KEPT = 2  # checkpoints: the newest, and the one before in case it is damaged


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of a run, so that a second process is refused. The system releases the lock if a process dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another process is training in {folder}; wait for it, or stop it") from None
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to: {error.strerror or error}; grant access to it, or give another folder"
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
    def create(cls, folder: Path, *, config: str, about: Mapping[str, Any], profile: Profile | None = None) -> "Run":
        """Create the folder; config.toml is written last, so that a folder that has one is complete."""
        if (folder / "config.toml").exists():
            raise ValueError(f"{folder} already holds a run; resume it, or give another folder")
        if found := [name for name in ("metrics.jsonl", "result.json") if (folder / name).exists()] or [
            path.name for path in (folder / "checkpoints").glob("step-*")
        ]:
            raise ValueError(
                f"{folder} holds {found[0]} of a run whose config.toml is missing; restore it, or give another folder"
            )
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_text(_json(about, indent=1), folder / "about.json")
        if profile is not None:
            profile.save(folder / "profile.json")
        write_text(config, folder / "config.toml")
        return cls(folder)

    # Configuration and machine

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    def config(self) -> dict[str, Any]:
        """Return the configuration as a table."""
        return read_table(self.folder / "config.toml", tomllib.loads) or {}

    def about(self) -> dict[str, Any]:
        """Return the machine and the versions that it ran with."""
        return read_table(self.folder / "about.json") or {}

    def profile(self) -> Profile | None:
        """Return the times of the layers that the run's target is about, if it is a time."""
        file = self.folder / "profile.json"
        return Profile.load(file) if file.exists() else None

    # Metrics

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(_json(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics; a line that was cut short by a kill is left out."""
        return self.metrics_and_damage()[0]

    def metrics_and_damage(self) -> tuple[list[dict[str, Any]], int]:
        """Return the metrics, and the number of lines left out because they cannot be read."""
        records, damaged = [], 0
        for line in (read_text(self.folder / "metrics.jsonl", errors="replace") or "").split("\n"):
            if not line.strip():
                continue
            try:
                record = parse(json.loads, line)
            except ValueError:
                record = None
            if isinstance(record, dict):
                records.append(record)
            else:
                damaged += 1
        return records, damaged

    def rewind(self, step: int) -> None:
        """Discard everything after a step, because the training continues from there.

        Metrics are removed. Later checkpoints can only be damaged. They are renamed, because they would count as the
        newest and displace new ones.
        """
        for path in self.checkpoints():
            if _age(path) > _age(self._checkpoint(step)):
                path.replace(path.with_name(f"{path.name}.damaged"))
        kept = [record for record in self.metrics() if (at := COUNT.at(record, "step")) is not None and at <= step]
        write_text("".join(_json(record) + "\n" for record in kept), self.folder / "metrics.jsonl")

    # Checkpoints

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints, oldest first."""
        found = (self.folder / "checkpoints").glob("step-*.safetensors")
        return sorted(found, key=_age)

    def save(self, step: int, state: Tree) -> Path:
        """Write a checkpoint and remove old ones."""
        path = self._checkpoint(step)
        states.save(state, path)
        for old in self.checkpoints()[:-_KEPT]:
            old.unlink(missing_ok=True)
        return path

    def newest(self) -> tuple[Tree | None, list[str]]:
        """Return the newest intact checkpoint, if there is one, and what is wrong with newer ones."""
        complaints: list[str] = []
        for path in reversed(self.checkpoints()):
            try:
                return states.load(path), complaints
            except DamagedError as error:
                complaints.append(str(error))
        return None, complaints

    def _checkpoint(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"step-{step:09d}.safetensors"

    # Results

    def finish(self, weights: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Write the final weights, then the result; its presence marks the run as finished."""
        save_weights(weights, self.folder / "model.safetensors")
        write_text(_json(result, indent=1), self.folder / "result.json")
        for path in self.checkpoints():
            path.unlink(missing_ok=True)

    def result(self, *needed: str) -> dict[str, Any] | None:
        """Return the result, which must have all needed keys with valid values; None if the run is not finished."""
        file = self.folder / "result.json"
        again = "remove the file and resume the run to write it again"
        try:
            if (found := read_table(file)) is not None:
                check_result(found, needed)
        except ValueError as error:
            named = str(error) if str(file) in str(error) else f"{file} is damaged: {error}"
            raise ValueError(f"{named}; {again}") from None
        return found

    def weights(self) -> dict[str, Any]:
        """Return the final weights, and the rest of the state of the model."""
        return load_weights(self.folder / "model.safetensors")

    def file_bytes(self) -> int | None:
        """Return the size of the file with the final weights, if it exists."""
        file = self.folder / "model.safetensors"
        return file.stat().st_size if file.is_file() else None

    def save_runtime(self, record: Mapping[str, Any]) -> None:
        """Save the measurements of the packed network."""
        write_text(_json(record, indent=1), self.folder / "runtime.json")

    def runtime(self) -> dict[str, Any] | None:
        """Return the measurements of the packed network, if there are any."""
        return read_table(self.folder / "runtime.json")

    @property
    def status(self) -> str:
        """The word "finished" or "unfinished"."""
        return "unfinished" if self.result() is None else "finished"


def folder_of(runs: Path, name: str, seed: int) -> Path:
    """Return the folder of the run with a name and a seed; a name may contain any characters.

    >>> folder_of(Path("runs"), "RVSM ℓ0, 90 % zeros", 1).as_posix()
    'runs/rvsm-l0-90-zeros-s1'
    """
    plain = unicodedata.normalize("NFKC", name).lower()
    words = "".join(c if c.isalnum() or c in "._-" else " " for c in plain).split()
    whole = "-".join(words).strip(".-").encode()
    return runs / f"{whole[:100].decode(errors='ignore') or 'run'}-s{seed}"  # file systems count bytes


def _age(checkpoint: Path) -> tuple[int, str]:
    """Return a key that sorts checkpoints by step, whatever the length of the number."""
    return len(checkpoint.name), checkpoint.name


def _json(record: Mapping[str, Any], indent: int | None = None) -> str:
    r"""Return a record as a string that UTF-8 can encode, so that no measurement is lost because of a name.

    File names may contain bytes that are not UTF-8. Python keeps them as lone surrogates, which are escaped in JSON.

    >>> _json({"class": "caf\udce9 ℓ0"})
    '{"class": "caf\\udce9 ℓ0"}'
    """
    return json.dumps(dict(record), indent=indent, ensure_ascii=False).encode(errors="backslashreplace").decode()
