"""Values as a file of options can hold them."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """Return a value as TOML has it: a text, a number, true or false, or lists and tables of these.

    A value that has no place there is a ValueError that says what it is.

    >>> plain((3, Path("a"))), plain({"b": {0.5}})
    ([3, 'a'], {'b': [0.5]})
    """
    if isinstance(value, str | Path | Enum):
        return _text(value.name if isinstance(value, Enum) else str(value))
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"the key {odd[0]!r} (no text)")
        return {_text(key): plain(part) for key, part in value.items()}
    raise ValueError("null" if value is None else getattr(value, "__qualname__", repr(value)))


def is_plain(value: Any) -> bool:
    """Return whether a file of options can hold a value."""
    try:
        plain(value)
    except ValueError:
        return False
    return True


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} (not UTF-8)") from None
    return text
