"""What is wrong with a configuration, in words."""

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rvsm.config.sections import CHOICES, PLAIN, takes

NO_TARGET = (
    "the method needs to know how many zeros you want: give a target, --budget.sparsity 0.9 (rvsm, magnitude, acdc), or"
    " a penalty's weight, --penalty.lam 1e-6, with rvsm also --method.beta 0.08"
)


def unknown_key(key: str, types: Mapping[str, Any]) -> str:
    """Say what is wrong with a key that is not among the known ones, whose types are given by key."""
    section, _, option = key.partition(".")
    known = [name for name in types if name.startswith(f"{section}.")]
    if not option:
        if section in (*CHOICES, *PLAIN):
            return f"[{section}] is a section: write [{section}] and its options below, or --{section}.option"
        return f"unknown key {key!r}; {_nearest(key, [n for n in types if '.' not in n])} and the sections"
    if section not in (*CHOICES, *PLAIN):
        return f"unknown section {section!r}; {_nearest(section, [*CHOICES, *PLAIN])}"
    if not known:
        with_it = " or ".join(name for name, maker in CHOICES["method"].entries.items() if takes(maker, section))
        return f"{key}: the chosen method has no {section}; leave the section out, or choose {with_it}"
    return _misplaced(key, types) or f"unknown key {key!r}; {_nearest(key, known or types)}"


def _misplaced(key: str, types: Mapping[str, Any]) -> str | None:
    """Say why a key of a known name is not welcome here."""
    section, _, option = key.partition(".")
    if key == "penalty.lam" and "budget.sparsity" in types:
        return "penalty.lam and a budget exclude each other: budget.sparsity sets λ; leave one of them out"
    if key == "method.sparsity":
        return "unknown key 'method.sparsity'; with rvsm and magnitude the target is budget.sparsity"
    if section in CHOICES and option in CHOICES[section].given:
        return f"{key} is decided by the rest of the training; leave it out"
    entries = CHOICES[section].entries if section in CHOICES else {}
    if owners := [name for name, maker in entries.items() if takes(maker, option)]:
        return f"{key} is an option of {section}.name = {' or '.join(map(repr, owners))}, which is not chosen"
    return None


def _nearest(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, known, 1, cutoff=0.5)
    return f"{f'did you mean {near[0]!r}? ' if near else ''}there are {', '.join(known)}"


def wrong_value(error: str, said: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    """Turn a message of jsonargparse into a sentence."""
    key = re.search(r'[Pp]arser key "([^"]+)"', error) or re.search(r"argument --([\w.]+)", error)
    if key and key[1] in types and key[1] in said:
        kind = words(types[key[1]])
        example = "; a list is written [a, b]" if "list" in kind and isinstance(said[key[1]], str) else ""
        return f"{key[1]} must be {kind} but is {said[key[1]]!r}{example}"
    if missing := re.search(r"arguments? (?:is|are) required: (.*)", error):
        first = missing[1].split(",")[0].strip()
        if first == "penalty.lam" and "method.beta" not in said:
            return NO_TARGET
        return f"{first} is missing: give --{first} on the command line, or write it in the file"
    return " ".join(error.split())


def words(annotation: Any) -> str:
    """Return a type in words.

    >>> words(float | None), words(tuple[float, ...]), words(Literal["a", "b"])
    ('a number or null', 'a list of numbers', 'a or b')
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join("null" if part is NoneType else words(part) for part in arguments)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis:
        first, second = map(words, arguments)
        return f"a list of {first} and {second}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a table"
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return f"a list of {words(arguments[0]).removeprefix('a ')}s"
    is_path = isinstance(annotation, type) and issubclass(annotation, os.PathLike)
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return "a path" if is_path else plain.get(annotation, str(annotation))
