"""Read the text files of a run's folder; nothing in them is trusted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def read_text(file: Path, *, errors: str = "strict") -> str | None:
    """Return the contents of a text file, or None if there is no such file.

    It must be a regular file: a pipe would never end. Bytes that are not UTF-8 are ``errors`` as in `bytes.decode`.
    """
    if not file.exists():
        return None
    require_regular(file)
    try:
        return file.read_text(encoding="utf-8", errors=errors)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None


def require_regular(file: Path) -> None:
    """Raise unless a path is a regular file, or a link to one."""
    if not file.is_file():
        raise ValueError(f"{file} is not a regular file; remove it")


def parse(loads: Callable[[str], Any], text: str) -> Any:
    """Parse a string with `json.loads` or `tomllib.loads`; nesting that is too deep is a ValueError, like other damage.

    >>> parse(json.loads, "[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: it is nested too deeply
    """
    try:
        return loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_table(file: Path, loads: Callable[[str], Any] = json.loads) -> dict[str, Any] | None:
    """Return the object in a JSON file, or the table in a TOML file, or None if there is no such file."""
    text = read_text(file)
    if text is None:
        return None
    try:
        found = parse(loads, text)
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{file} is damaged: it should hold an object")
    return found
