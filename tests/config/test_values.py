"""Words of the command line and values of files become what the types say, and a file gives them back unchanged."""

import enum
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from rvsm.config.values import kind_of, plain, typed


class Kind(enum.Enum):
    WIDE = "w"
    DEEP = "d"


@pytest.mark.parametrize(
    ("annotation", "word", "expected"),
    [
        (int, "3", 3),
        (float, "3", 3.0),
        (float, "1e-6", 1e-6),
        (bool, "true", True),
        (str, "3", "3"),
        (str, "null", "null"),
        (str, '"a"', '"a"'),
        (float | None, "null", None),
        (int | str, "3", 3),
        (str | int, "a", "a"),
        (str | Path | None, "null", None),
        (str | Path | None, "#", "#"),
        (Path, "a/b", Path("a/b")),
        (Kind, "DEEP", Kind.DEEP),
        (Literal["auto", "true"], "true", "true"),
        (Literal[1, 2], "2", 2),
        (Annotated[int, "many"], "3", 3),
        (list[str], "[a, b]", ["a", "b"]),
        (Iterable[str] | None, '["a*"]', ["a*"]),
        (tuple[float, float], "[1, 2]", (1.0, 2.0)),
        (tuple[int, ...], "[]", ()),
        (set[int], "[1, 1]", {1}),
        (frozenset[int], "[1]", frozenset({1})),
        (Mapping[str, Mapping[str, Any]], '{"0.*": {"beta": 0.1}}', {"0.*": {"beta": 0.1}}),
        (dict[str, float], "{a: 1}", {"a": 1.0}),
        (Any, "[1, a]", [1, "a"]),
        (Any, "1e-6", 1e-6),
        (Any, "a: b: c", "a: b: c"),
    ],
)
def test_words(annotation: Any, word: str, expected: Any) -> None:
    found = typed("key", word, annotation, word=True)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, "3", 3),
        (str, 937, "937"),
        (Literal["auto", "true"], True, "true"),
        (Any, "007", "007"),
        (int | str, "3", "3"),
        (Sequence[int], [1], [1]),
        (Mapping[str, Any], {"a": "3"}, {"a": "3"}),
    ],
)
def test_values_of_files(annotation: Any, value: Any, expected: Any) -> None:
    found = typed("key", value, annotation)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        (int, True, "an integer"),
        (int, 3.0, "an integer"),
        (float, math.nan, "a number"),
        (float, 10**400, "a number"),
        (float, "1e999", "a number"),
        (bool, 1, "true or false"),
        (str, ["a"], "a string"),
        (Literal[1, 2], 3, "1 or 2"),
        (Kind, "w", "WIDE or DEEP"),
        (list[str], "a", "a list of strings"),
        (list[bool], 3, "a list"),
        (tuple[int, int], [1, 2, 3], "a list of 2 integers"),
        (tuple[int, str], [1, 2], "a list"),
        (Mapping[str, float], [1], "a table"),
        (type, "builtins.int", "a Python object"),
        ("not resolved", 3, "a Python object"),
    ],
)
def test_misfits(annotation: Any, value: Any, told: str) -> None:
    for word in (False, True) if isinstance(value, str) else (False,):
        with pytest.raises(ValueError, match=rf"^key must be {told} but is "):
            typed("key", value, annotation, word=word)


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    bomb = (
        "[&a [x, x], "
        + ", ".join(f"&{b} [*{a}, *{a}]" for a, b in zip("abcdefghijk", "bcdefghijkl", strict=True))
        + "]"
    )
    assert typed("key", bomb, Any, word=True) == bomb


LEAVES: list[Any] = [int, float, bool, str, Path, Kind, Literal["a", "true", "3"], Any]
ANNOTATIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.map(lambda kind: list[kind]),
        inner.map(lambda kind: tuple[kind, ...]),
        inner.map(lambda kind: dict[str, kind]),
        inner.map(lambda kind: kind | None if kind is not Any else kind),
        st.tuples(inner, inner).map(lambda pair: tuple[pair]),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-9, 9), st.floats(allow_nan=False), st.sampled_from(["a", "3", "WIDE", "[1]"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=4,
)


@settings(max_examples=300)
@given(ANNOTATIONS, VALUES)
def test_what_a_run_keeps_comes_back(annotation: Any, value: Any) -> None:
    """A run is resumed with the very values that it began with."""
    assert kind_of(annotation).words
    for word in (False, True) if isinstance(value, str) else (False,):
        try:
            began = typed("key", value, annotation, word=word)
        except ValueError:
            continue
        kept = tomllib.loads(tomli_w.dumps({"key": plain(began)}))["key"]
        assert typed("key", kept, annotation) == began
