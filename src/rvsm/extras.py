"""Libraries that come with an extra of the package, and the error message for one that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingLibraryError(ImportError):
    """A library that is not installed; the message names it and the command that installs it."""


@contextmanager
def needed_by(name: str, *, extra: str | None) -> Iterator[None]:
    """Turn a missing library into an error with the command that installs it.

    >>> with needed_by("rvsm.RVSM", extra="torch"):
    ...     raise ModuleNotFoundError(name="torch.nn")
    Traceback (most recent call last):
    rvsm.extras.MissingLibraryError: rvsm.RVSM needs torch, which is not installed: pip install 'rvsm[torch]'

    Args:
        name: what needs the libraries that are imported in the block.
        extra: the extra that installs all of them; None if a plain installation does.

    """
    try:
        yield
    except ModuleNotFoundError as missing:
        library = (missing.name or "").partition(".")[0]
        if library == "rvsm":  # our own bug, which no installation would fix
            raise
        package = f"'rvsm[{extra}]'" if extra else "rvsm"
        raise MissingLibraryError(
            f"{name} needs {library}, which is not installed: pip install {package}", name=library
        ) from missing
