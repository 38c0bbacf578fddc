"""Values of untrusted files: each has the expected kind, or the error says what was expected."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

T = TypeVar("T")

LARGE = 1e30
"""A larger number is a sign of divergence, and would spoil an axis."""


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of value.

    >>> FRACTION.at({"u": 0.9}, "u"), FRACTION.at({"u": "high"}, "u")
    (0.9, None)
    >>> FRACTION.needed({"test": {"u": 2}}, "test", "u")
    Traceback (most recent call last):
    ...
    ValueError: test.u should be a fraction in [0, 1] but is 2
    """

    expected: str  # its description in errors
    read: Callable[[Any], T | None]  # returns the value, or None if it is of another kind

    def at(self, tree: Any, *path: str) -> T | None:
        """Return the value at a path; None if there is none of this kind."""
        return self.read(inside(tree, *path))

    def given(self, tree: Any, *path: str) -> T | None:
        """Return the value at a path; None if it is missing or null."""
        return None if inside(tree, *path) is None else self.needed(tree, *path)

    def needed(self, tree: Any, *path: str) -> T:
        """Return the value at a path.

        Raises:
            ValueError: it is missing, or of another kind.

        """
        found = inside(tree, *path)
        value = self.read(found)
        if value is None:
            raise ValueError(f"{'.'.join(path)} should be {self.expected} but is {repr(found)[:60]}")
        return value


def read_with(read: Callable[..., Any], *path: str) -> Any:
    """Return a field of a dataclass whose value is ``read(tree, *path)``; the default path is the field's name."""
    return field(metadata={"read": read, "path": path})


def read_fields(cls: type[Any], tree: Any) -> dict[str, Any]:
    """Return the values of the fields of a dataclass that are declared with `read_with`."""
    declared = [(one.name, one.metadata) for one in fields(cls) if "read" in one.metadata]
    return {name: how["read"](tree, *(how["path"] or (name,))) for name, how in declared}


def inside(tree: Any, *path: str) -> Any:
    """Return the value at a path of nested tables, or None.

    >>> inside({"test": {"u": 1}}, "test", "u"), inside({"test": 3}, "test", "u")
    (1, None)
    """
    for key in path:
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(key)
    return tree


def clean(text: object) -> str:
    r"""Return a string without characters that cannot be written or would break a line.

    >>> clean("a\nb\x00\ud800")
    'a b ?'
    """
    shown = "".join(c if c.isprintable() or "\ud800" <= c <= "\udfff" else " " for c in str(text))
    return shown.encode("utf-8", "replace").decode("utf-8")


def _number(low: float = -LARGE, high: float = LARGE) -> Callable[[Any], float | None]:
    """Return a function that reads a number within bounds."""
    return lambda found: float(found) if type(found) in (int, float) and low <= found <= high else None


def _integer(low: float = -LARGE) -> Callable[[Any], int | None]:
    return lambda found: found if type(found) is int and low <= found <= LARGE else None


def _listed(read: Callable[[Any], T | None]) -> Callable[[Any], tuple[T, ...] | None]:
    """Return a function that reads a list whose items are all of one kind."""

    def read_all(found: Any) -> tuple[T, ...] | None:
        if not isinstance(found, list):
            return None
        values = tuple(value for item in found if (value := read(item)) is not None)
        return values if len(values) == len(found) else None

    return read_all


NUMBER = Kind("a number", _number())
NON_NEGATIVE = Kind("a number ≥ 0", _number(0))
FRACTION = Kind("a fraction in [0, 1]", _number(0, 1))
INTEGER = Kind("an integer", _integer())
COUNT = Kind("an integer ≥ 0", _integer(0))
SHAPE = Kind("a list of integers ≥ 1", _listed(_integer(1)))
NUMBERS = Kind("a list of numbers", _listed(NUMBER.read))
NON_NEGATIVES = Kind("a list of numbers ≥ 0", _listed(NON_NEGATIVE.read))
LINE: Kind[str] = Kind("a string of one line", lambda s: s if isinstance(s, str) and s and s.isprintable() else None)
LIST: Kind[list[Any]] = Kind("a list", lambda found: found if isinstance(found, list) else None)
TABLE: Kind[Mapping[str, Any]] = Kind("an object", lambda found: found if isinstance(found, Mapping) else None)
