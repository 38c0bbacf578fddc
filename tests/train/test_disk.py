"""A disk that is full, or may not be written to."""

import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rvsm.data import Dataset
from rvsm.records import Run
from rvsm.train import resume, start


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("a small file system needs mount")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def readonly(disk: Path) -> Iterator[Any]:
    """Make the small file system read-only, and writable again at the end."""

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True, capture_output=True)

    yield remount
    remount("rw")


def fill(folder: Path, leave: int) -> None:
    """Fill a disk but for so many bytes."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_bsize
    with (folder / "ballast").open("ab") as file:
        file.write(bytes(max(free - leave, 0)))


def console() -> Console:
    return Console(file=io.StringIO())


# A run of the small network needs about 100 kB: two checkpoints of 30, and one that is being written.
@pytest.mark.parametrize("leave", [8_192, 24_576, 49_152, 65_536, 90_112])
def test_full_at_some_moment(disk: Path, small: Any, whole: Run, digits: Dataset, leave: int) -> None:
    config = small()
    folder = disk / "run"
    fill(disk, leave)
    with pytest.raises(ValueError, match="run cannot be written to: No space left on device") as error:
        start(config, folder, console(), digits)
    text = str(error.value)
    assert "\n" not in text
    assert not list(folder.rglob("*.tmp"))
    if (folder / "config.toml").exists():
        assert text.endswith(
            f"Earlier work is not lost. Free some space or grant access, then continue with: rvsm resume {folder}"
        )
        _, complaints = Run(folder).newest()
        assert complaints == []
        fill(disk, 0)
        with pytest.raises(ValueError, match="cannot be written to: No space left on device"):
            resume(folder, console(), digits)  # still no room
        (disk / "ballast").unlink()
        resume(folder, console(), digits)
    else:
        assert text.endswith("Free some space, grant access, or choose another folder")
        (disk / "ballast").unlink()
        start(config, folder, console(), digits)
    assert all(torch.equal(w, whole.weights()[name]) for name, w in Run(folder).weights().items())
    assert [record["step"] for record in Run(folder).metrics()] == [4, 8, 12]


def test_full_from_the_beginning(disk: Path, small: Any, digits: Dataset) -> None:
    fill(disk, 0)
    with pytest.raises(ValueError, match=r"run cannot be written to: No space left on device\. Free some space"):
        start(small(), disk / "run", console(), digits)


def test_read_only(disk: Path, readonly: Any, small: Any, digits: Dataset) -> None:
    start(small(), disk / "done", console(), digits)
    (disk / "done" / "result.json").unlink()
    readonly("ro")
    with pytest.raises(ValueError, match="new cannot be written to: Read-only file system; grant access to it, or"):
        start(small(), disk / "new", console(), digits)
    with pytest.raises(ValueError, match="done cannot be written to: Read-only file system; grant access"):
        resume(disk / "done", console(), digits)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path, small: Any, digits: Dataset) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ValueError, match="new cannot be written to: Permission denied"):
            start(small(), tmp_path / "new", console(), digits)
    finally:
        tmp_path.chmod(0o700)
