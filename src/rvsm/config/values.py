"""Convert the values of options: from words of a command line or values of a file to Python types, and back."""

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from enum import Enum
from inspect import Parameter
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

_SIMPLE = {bool: "true or false", int: "an integer", float: "a number", str: "a string", NoneType: "null"}
_MISFITS = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)


class Kind(NamedTuple):
    """A kind of option: its description, and a function that returns a value of its type or raises."""

    words: str
    fit: Callable[[Any], Any]


def typed(key: str, value: Any, annotation: Any, *, word: bool = False) -> Any:
    """Return the value of an option in the type of its annotation, or raise a ValueError that names its key.

    A string may stand for another value, such as "3" for an integer, and a number for a string. In a ``word`` of the
    command line, "3" may be either. Numbers are finite, and members of an enumeration are given by name.

    >>> typed("lr", 3, float), typed("drops", [1, 2], tuple[int, ...]), typed("exclude", "[a, b]", list[str])
    (3.0, (1, 2), ['a', 'b'])
    """
    kind = kind_of(annotation)
    for reading in _readings(value, several=word and (kind is ANYTHING or _is_union(annotation))):
        with suppress(*_MISFITS):
            return kind.fit(reading)
    hint = "; a list is written [a, b]" if "list" in kind.words and isinstance(value, str) else ""
    raise ValueError(f"{key} must be {kind.words} but is {value!r}{hint}")


def kind_of(annotation: Any) -> Kind:  # noqa: PLR0911 - one line per kind of type
    """Return what an annotation allows.

    >>> [kind_of(a).words for a in (float | None, tuple[float, ...], Literal["a", "b"])]
    ['a number or null', 'a list of numbers', 'a or b']
    """
    origin, parts = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Any, object, Parameter.empty):
        return ANYTHING
    if origin is Annotated:
        return kind_of(parts[0])
    if _is_union(annotation):
        kinds = [kind_of(part) for part in parts]
        given = [kind for kind in kinds if kind is not OBJECT]
        kinds = given if any(kind.words != "null" for kind in given) else kinds
        return Kind(" or ".join(kind.words for kind in kinds), lambda value: _first(kinds, value))
    if origin is Literal:
        return _one_of({_text(part): part for part in parts})
    if not isinstance(origin, type):
        return OBJECT
    if origin in _SIMPLE:
        return Kind(_SIMPLE[origin], _number if origin is float else lambda value: _exact(value, origin))
    if issubclass(origin, Enum):
        return _one_of(origin.__members__)
    if issubclass(origin, os.PathLike):
        return Kind("a path", lambda value: Path(_exact(value, str)))
    if issubclass(origin, Mapping):
        inner = kind_of(parts[1] if parts else Any)
        return Kind("a table", lambda value: {key: inner.fit(part) for key, part in value.items()})
    return _list_of(origin, parts) if issubclass(origin, Iterable) else OBJECT


def plain(value: Any) -> Any:
    """Return a value in the form of TOML: a string, a number, true or false, or lists and tables of these.

    A value that TOML cannot hold raises a ValueError that says what it is.

    >>> plain((3, Path("a"))), plain({"b": {0.5}})
    ([3, 'a'], {'b': [0.5]})
    """
    if isinstance(value, str | Path | Enum):
        text = value.name if isinstance(value, Enum) else str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{text!r} (not UTF-8)") from None
        return text
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Set):
        return sorted(map(plain, value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"the key {odd[0]!r} (not a string)")
        return {plain(key): plain(part) for key, part in value.items()}
    raise ValueError("null" if value is None else getattr(value, "__qualname__", repr(value)))


def is_plain(value: Any) -> bool:
    """Return whether a file of options can hold a value."""
    try:
        plain(value)
    except ValueError:
        return False
    return True


def _readings(value: Any, *, several: bool) -> Iterator[Any]:
    """Iterate over the possible meanings of a value: first the value itself, unless a word may have several types."""
    if several:
        yield _parsed(value)
    yield value
    yield _parsed(value) if isinstance(value, str) else _text(value)


def _parsed(text: str) -> Any:
    """Parse a string as JSON, or as YAML, where quotes are optional; if neither works, return the string."""
    try:
        return json.loads(text)
    except ValueError:
        import yaml  # most values do not need it
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            return text  # a few aliases of aliases would fill the memory
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text
    return text if found is None else found


def _text(value: Any) -> Any:
    """Return a number, true or false as it is written in a file."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _exact(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not abs(value) <= sys.float_info.max:
        raise TypeError
    return float(value)


def _first(kinds: Iterable[Kind], value: Any) -> Any:
    for kind in kinds:
        with suppress(*_MISFITS):
            return kind.fit(value)
    raise TypeError


def _one_of(members: Mapping[str, Any]) -> Kind:
    return Kind(" or ".join(members), lambda value: members[_text(value)])


def _list_of(origin: type[Any], parts: tuple[Any, ...]) -> Kind:
    """Return the kind of a list, a tuple or a set."""
    inner = [kind_of(part) for part in parts if part is not ...] or [ANYTHING]
    fixed = origin is tuple and bool(parts) and ... not in parts
    names = {kind.words.partition(" ")[2] for kind in inner}
    simple = len(names) == 1 and set(parts) - {...} <= {int, float, str}
    make = (set if issubclass(origin, Set) else list) if inspect.isabstract(origin) else origin

    def fit(value: Any) -> Any:
        if not isinstance(value, list | tuple | Set) or (fixed and len(value) != len(parts)):
            raise TypeError
        return make([kind.fit(part) for kind, part in zip(inner if fixed else inner * len(value), value, strict=True)])

    return Kind(f"a list of {f'{len(parts)} ' if fixed else ''}{names.pop()}s" if parts and simple else "a list", fit)


def _refuse(value: Any) -> Any:
    raise TypeError


ANYTHING = Kind("any value", lambda value: value)
OBJECT = Kind("a Python object", _refuse)
