"""The JSON file of a profile. Nothing in it is trusted when it is read."""

import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rvsm.files import printable, write_text
from rvsm.timing.curves import Curve

if TYPE_CHECKING:
    from rvsm.timing.profile import Profile

FORMAT = "rvsm profile"
VERSION = 2  # version 1 has no "calls"
MAX_BYTES = 64 << 20
LARGE = 1e6  # seconds of one layer; also a bound for sizes, batches and threads


def encode(profile: "Profile") -> str:
    """Return a profile as text."""
    tree = {
        "format": FORMAT,
        "version": 1 if profile.calls is None else VERSION,
        "machine": profile.machine,
        "batch": profile.batch,
        "threads": profile.threads,
        "inputs": profile.inputs,
        "fixed_seconds": profile.fixed,
        "layers": {
            name: {
                "shape": times.shape,
                "groups": times.groups,
                "densities": times.seconds.x,
                "seconds": times.seconds.y,
            }
            for name, times in profile.layers.items()
        },
        **({} if profile.calls is None else {"calls": {"parts": profile.calls.x, "seconds": profile.calls.y}}),
    }
    return json.dumps(tree, indent=1)


def write(profile: "Profile", path: Path) -> None:
    """Write a profile to a file, atomically."""
    write_text(encode(profile) + "\n", path)


def read(path: Path) -> "Profile":
    """Return the profile in a file, or raise a ValueError that says what is wrong with it."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist or is not a file; give a profile that rvsm profile wrote")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} is not a profile: it has more than {MAX_BYTES >> 20} MB")
    try:
        return decode(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{path} is not a profile: {reason}; write it again with rvsm profile") from None


def decode(text: str) -> "Profile":
    """Return the profile in a text, or raise a ValueError that says what is wrong with it."""
    from rvsm.timing.profile import LayerTimes, Profile

    tree = json.loads(text)
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    if tree.get("version") not in (1, VERSION):
        raise ValueError(f"its version is {tree.get('version')!r}, but this rvsm reads versions 1 and {VERSION}")
    layers = tree.get("layers")
    if not isinstance(layers, dict) or not layers:
        raise ValueError("it has no layers")
    return Profile(
        _needed(tree, "machine", _name),
        _needed(tree, "batch", _count),
        _needed(tree, "threads", _count),
        _needed(tree, "inputs", lambda found: tuple(map(_shape, found)) if isinstance(found, list) and found else None),
        _needed(tree, "fixed_seconds", _time),
        {
            _layer(name): LayerTimes(
                _needed(times, "shape", _shape, name),
                _needed(times, "groups", _name, name),
                _curve(times, "densities", name, first=0.0, last=1.0),
            )
            for name, times in layers.items()
        },
        _curve(tree.get("calls"), "parts", "calls", first=0.0) if tree["version"] == VERSION else None,
    )


def _curve(tree: Any, x: str, of: str, *, first: float, last: float | None = None) -> Curve:
    """Return a curve of seconds against ``x``, which has these ends."""
    places = _needed(tree, x, partial(_rising, first=first, last=last), of)
    return Curve(places, _needed(tree, "seconds", partial(_rising, length=len(places)), of))


def _needed(tree: Any, key: str, kind: Callable[[Any], Any], layer: str | None = None) -> Any:
    """Return a value of a kind, which returns None, or raises, for what is not of it."""
    found = tree.get(key) if isinstance(tree, dict) else None
    try:
        value = kind(found)
    except (TypeError, ValueError, OverflowError):
        value = None
    if value is None:
        of = "" if layer is None else f" of {printable(layer)!r}"
        raise ValueError(f"{key}{of} is missing or damaged: {printable(repr(found)[:60])}")
    return value


def _name(found: Any) -> str | None:
    return found if isinstance(found, str) and found.isprintable() and 0 < len(found) < 1000 else None


def _layer(name: str) -> str:
    if _name(name) is None:
        raise ValueError(f"the name of a layer is {printable(name[:60])!r}")
    return name


def _count(found: Any) -> int | None:
    return found if type(found) is int and 1 <= found <= LARGE else None


def _time(found: Any) -> float | None:
    return float(found) if type(found) in (int, float) and isfinite(found) and 0 <= found <= LARGE else None


def _shape(found: Any) -> tuple[int, ...]:
    sizes = tuple(map(_count, found))
    if not isinstance(found, list) or None in sizes:
        raise TypeError
    return sizes  # type: ignore[return-value]


def _rising(
    found: Any, *, first: float | None = None, last: float | None = None, length: int | None = None
) -> tuple[float, ...] | None:
    """Return numbers that increase strictly, with these ends or this length."""
    numbers = [_time(number) for number in found]
    if len(numbers) < 2 or None in numbers or (length is not None and len(numbers) != length):
        return None
    rises = all(a < b for a, b in pairwise(numbers))  # type: ignore[operator]
    fits = first in (None, numbers[0]) and last in (None, numbers[-1])
    return tuple(numbers) if rises and fits else None  # type: ignore[arg-type]
