"""What is known of a run's result: the kinds of its values, as a file that anybody may have written must have them."""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1 << 20


def _is_list(value: Any, kind: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(kind, value))


def _is_test(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(copy), Mapping) and _is_share(value[copy].get("accuracy")) for copy in ("w", "u")
    )


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "test": (_is_test, "the accuracies of w and u"),
    "sparsity": (_is_share, "a fraction in [0, 1]"),
    "sparsity_of_all": (_is_share, "a fraction in [0, 1]"),
    "multiplications_saved": (lambda value: value is None or _is_share(value), "a fraction in [0, 1], or null"),
    "seconds": (lambda value: _is_number(value) and value >= 0, "a number ≥ 0"),
    "input": (lambda value: _is_list(value, _is_length) and len(value) == 3, "three whole numbers from 1"),
    "classes": (lambda value: _is_list(value, lambda name: isinstance(name, str)), "a list of names"),
    "mean": (lambda value: _is_list(value, _is_number), "a list of numbers"),
    "std": (lambda value: _is_list(value, lambda s: _is_number(s) and s > 0), "a list of numbers > 0"),
}
"""For each key that is used by name, what its value must be, and how to say that."""


def check_result(result: Mapping[str, Any], needed: tuple[str, ...]) -> None:
    """Raise unless a result has the keys that are needed, each of its kind.

    >>> check_result({"sparsity": "half"}, ("sparsity",))
    Traceback (most recent call last):
    ...
    ValueError: 'sparsity' should be a fraction in [0, 1] but is 'half'
    """
    for key in needed:
        if key not in result:
            raise ValueError(f"it lacks {key!r}")
        fits, expected = _KINDS[key]
        if not fits(result[key]):
            raise ValueError(f"{key!r} should be {expected} but is {repr(result[key])[:60]}")
