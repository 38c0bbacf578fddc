"""The kinds of values that the result of a run must have; the file is not trusted."""

from collections.abc import Mapping
from typing import Any

from rvsm.records.values import FRACTION, LIST, NON_NEGATIVE, NUMBERS, SHAPE, Kind


def _nonempty(kind: Kind[Any], expected: str, *, above: float | None = None) -> Kind[Any]:
    """Return a kind of nonempty list, with all numbers above a bound if there is one."""

    def read(found: Any) -> Any:
        values = kind.read(found)
        return values if values and (above is None or min(values) > above) else None

    return Kind(expected, read)


_SIDE = 1 << 20
_KINDS: dict[str, Kind[Any]] = {
    "test": Kind(
        "the accuracies of w and u",
        lambda found: found if all(FRACTION.at(found, of, "accuracy") is not None for of in "wu") else None,
    ),
    "sparsity": FRACTION,
    "sparsity_of_all": FRACTION,
    "multiplications_saved": Kind(
        "a fraction in [0, 1], or null", lambda found: "unknown" if found is None else FRACTION.read(found)
    ),
    "seconds": NON_NEGATIVE,
    "input": Kind(
        f"three integers from 1 to {_SIDE}",
        lambda found: s if (s := SHAPE.read(found)) and len(s) == 3 and max(s) <= _SIDE else None,
    ),
    "classes": Kind(
        "a list of names", lambda found: found if LIST.read(found) and all(isinstance(n, str) for n in found) else None
    ),
    "mean": _nonempty(NUMBERS, "a list of numbers"),
    "std": _nonempty(NUMBERS, "a list of numbers > 0", above=0),
}
"""The kind of value for each key that is used by name."""


def check_result(result: Mapping[str, Any], needed: tuple[str, ...]) -> None:
    """Raise unless a result has all needed keys, each with a value of its kind.

    >>> check_result({"sparsity": "half"}, ("sparsity",))
    Traceback (most recent call last):
    ...
    ValueError: 'sparsity' should be a fraction in [0, 1] but is 'half'
    """
    for key in needed:
        if key not in result:
            raise ValueError(f"{key!r} is missing")
        if _KINDS[key].read(result[key]) is None:
            raise ValueError(f"{key!r} should be {_KINDS[key].expected} but is {repr(result[key])[:60]}")
