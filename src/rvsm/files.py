"""Write files atomically, and show strings from untrusted files safely."""

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TEMPORARY = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path in the target's folder; at the end, the file is synced and renamed to the target.

    If the block raises, or the process is killed, the target is unchanged. The last of several processes wins.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "a.txt")
    ...     with replacing(target) as temporary:
    ...         length = temporary.write_text("whole")
    ...     target.read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not a file of tempfile, so that the file gets the permissions of the user's umask.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")  # _TEMPORARY matches it
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def require_writable(target: Path) -> None:
    """Raise a ValueError if a file cannot be written, before the work whose result it is to hold.

    >>> import tempfile
    >>> require_writable(Path(tempfile.gettempdir()))
    Traceback (most recent call last):
    ...
    ValueError: ... is a folder; give the name of a file in it
    """
    if target.is_dir():
        raise ValueError(f"{target} is a folder; give the name of a file in it")
    probe = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"{target} cannot be written: {error.strerror}; give another file") from None


def write_text(text: str, path: Path) -> None:
    """Write a string to a file atomically: a kill at any moment leaves the old file or the new one."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def printable(text: str) -> str:
    r"""Return a string that is safe to show in a terminal: characters that are not printable become escapes.

    The author of a file may have chosen the name of a layer that moves the cursor or changes earlier output.

    >>> printable("conv1 \x1b[2J\n é")
    'conv1 \\x1b[2J\\n é'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def remove_leftovers(folder: Path, *, of: str | None = None, unchanged_for: float = 0.0) -> None:
    """Remove unfinished files that killed processes left behind.

    Args:
        folder: the folder to search.
        of: the name of the file that was to be written; None for any.
        unchanged_for: remove only files unchanged for this many seconds; others may still be written.

    """
    for leftover in folder.glob(".*.tmp"):
        found = _TEMPORARY.fullmatch(leftover.name)
        if found is None or of not in (None, found["target"]) or not leftover.is_file():
            continue
        with suppress(FileNotFoundError):  # another process may have been faster
            if time.time() - leftover.stat().st_mtime >= unchanged_for:
                leftover.unlink()


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that a new name reaches the disk, if the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
