"""Read the files of a tar archive one after another; nothing is ever extracted to disk."""

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
        """Return the contents; this is fast before the next member is requested."""
        if self.entry.size > _MOST_BYTES:
            raise ValueError(
                f"{self.path} in {self.source} has {self.entry.size} bytes, more than {_MOST_BYTES}; remove it from"
                " the archive"
            )
        with _explained(self.source):
            file = self.archive.extractfile(self.entry)
            return file.read() if file else b""


def members(path: Path) -> Iterator[Member]:
    """Iterate over the regular files of a tar archive, compressed or not; links and devices are skipped.

    A name that is absolute or contains ".." is an error, as in tarfile's filter "data". So is an archive that ends too
    early.
    """
    with _explained(path), tarfile.open(path, "r:*") as archive:
        for entry in archive:
            name = PurePosixPath(entry.name)
            if name.is_absolute() or ".." in name.parts:
                raise ValueError(
                    f"{path} holds a file {entry.name!r}, which points outside the archive; remove it from the archive"
                )
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
        raise ValueError(
            f"{path} is not a tar archive, or is damaged or truncated ({reason}); get a new copy"
        ) from error


def _check_end(path: Path) -> None:
    """Raise unless an uncompressed archive ends with two empty blocks; tarfile does not check this.

    Compressed archives have their own end mark.
    """
    with path.open("rb") as file:
        if file.read(262)[257:] != b"ustar":
            return
        file.seek(-1024, 2)
        if any(file.read()):
            raise tarfile.ReadError("it has no end mark")
