"""Files in a tar archive, read one after the other; nothing is ever extracted to disk."""

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_MOST_BYTES = 1 << 28


class Member(NamedTuple):
    """A regular file in an archive."""

    path: PurePosixPath
    source: Path
    archive: tarfile.TarFile
    entry: tarfile.TarInfo

    def read(self) -> bytes:
        """Return the contents; quick before the next member is asked for."""
        if self.entry.size > _MOST_BYTES:
            raise ValueError(f"{self.path} in {self.source} has {self.entry.size} bytes, more than {_MOST_BYTES}")
        with _explained(self.source):
            file = self.archive.extractfile(self.entry)
            return file.read() if file else b""


def members(path: Path) -> Iterator[Member]:
    """Iterate over the regular files of a tar archive, compressed or not; links and devices are passed over.

    A name that is absolute or leads upwards is an error, as it is for tarfile's filter "data". So is an archive that
    ends too early.
    """
    with _explained(path), tarfile.open(path, "r:*") as archive:
        for entry in archive:
            name = PurePosixPath(entry.name)
            if name.is_absolute() or ".." in name.parts:
                raise ValueError(f"{path} holds a file {entry.name!r}, which leads out of the archive; not read")
            if entry.isreg():
                yield Member(name, path, archive, entry)
        _check_end(path)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist") from error
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is no tar archive, or a damaged or truncated one ({reason}); get it again") from error


def _check_end(path: Path) -> None:
    """Raise unless a plain tar ends with two empty blocks, without which tarfile takes any end for the end.

    Compressed archives have an end mark of their own.
    """
    with path.open("rb") as file:
        if file.read(262)[257:] != b"ustar":
            return
        file.seek(-1024, 2)
        if any(file.read()):
            raise tarfile.ReadError("it has no end mark")
