"""Files that are there as a whole or not at all."""

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
    """Give a temporary path in the target's folder; on leaving, its contents reach the disk and take the target's name.

    If the block raises, or the process is killed, the target stays as it was. The last of several processes wins.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "a.txt")
    ...     with replacing(target) as temporary:
    ...         length = temporary.write_text("whole")
    ...     target.read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # A name of our own, not tempfile's, so that the file gets the permissions that the user's umask allows.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")  # what _TEMPORARY matches
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(text: str, path: Path) -> None:
    """Write a text in one piece: a kill at any moment leaves the old file or the new one."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def printable(text: str) -> str:
    r"""Return a text that a terminal can show as it is: characters that are not printable become escapes.

    Names in a file that somebody else wrote may hold sequences that move the cursor or change what was printed.

    >>> printable("conv\x1b[2J 1 ℓ0")
    'conv\\x1b[2J 1 ℓ0'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def remove_leftovers(folder: Path, *, of: str | None = None, unchanged_for: float = 0.0) -> None:
    """Remove what killed processes left of files that were never finished.

    Args:
        folder: where they may be.
        of: the name that the file was to have; None for any.
        unchanged_for: seconds; where other processes may be writing, a file that changes is theirs.

    """
    for leftover in folder.glob(".*.tmp"):
        found = _TEMPORARY.fullmatch(leftover.name)
        if found is None or of not in (None, found["target"]) or not leftover.is_file():
            continue
        with suppress(FileNotFoundError):  # another process may have been faster
            if time.time() - leftover.stat().st_mtime >= unchanged_for:
                leftover.unlink()


def _sync_folder(folder: Path) -> None:
    """Make a new name reach the disk, where the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
