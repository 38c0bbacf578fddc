"""The available options: the arguments of the chosen entries, with their names, types, defaults and docstrings."""

import inspect
import json
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from inspect import Parameter
from typing import Any

from rvsm.config.sections import CHOICES, PLAIN, Entry, arguments, entry, is_own, needs, origin, takes, takes_more
from rvsm.config.values import is_plain, kind_of, plain
from rvsm.models import require_allowed

_RUN = {
    "name": (str, None, "the name of the run; by default, the name of the file."),
    "seed": (int, 0, "seed of the weights, the batches, the augmentation and the choice of validation images."),
}
_WEIGHTS = "weights to begin with: a .safetensors file, or the folder of a finished run of the same network."


class Options:
    """The available options, after the names in the settings have chosen their entries.

    Args:
        said: the user's settings, by key.
        allowed: the user's own models, as module:callable, that may be imported.
        everything: include options that exclude each other, λ and a budget, for the help.

    """

    def __init__(self, said: Mapping[str, Any], *, allowed: Collection[str] = (), everything: bool = False) -> None:
        self.known = {key: _option(key, kind, default) for key, (kind, default, _) in _RUN.items()}
        self.fixed: set[str] = set()  # the keys of arguments that keep their default, since no file could hold it
        self.names = {section: str(said.get(f"{section}.name", known.default)) for section, known in CHOICES.items()}
        if is_own(self.names["model"]):
            require_allowed(self.names["model"], allowed)
        method = entry("method", self.names["method"])
        given = {key.partition(".")[0] for key in said}
        budgeted = takes(method, "budget") and (everything or "budget" in given)
        penalised = takes(method, "penalty") and (everything or "penalty" in given or needs(method, "penalty"))
        left_out = {"penalty": not penalised, "groups": not takes(method, "groups"), "budget": not budgeted}
        self.sections = {
            section: PLAIN[section] if section in PLAIN else entry(section, self.names[section])
            for section in ("data", "model", "optimizer", "schedule", "training", "augment", "method", *left_out)
            if not left_out.get(section)
        }
        for section, maker in self.sections.items():
            skip = {"steps"} if section in PLAIN else set(CHOICES[section].given)
            if section in CHOICES:
                self.known[f"{section}.name"] = _option("name", str, CHOICES[section].default)
            if section == "model" and not takes(maker, "weights"):
                self.known["model.weights"] = _option("weights", str, None)
            if section == "penalty" and budgeted and not everything:
                skip.add("lam")  # the budget sets it
            if section == "method" and takes(method, "budget"):
                skip.add("sparsity")  # it is budget.sparsity
            self._add(section, maker, skip)
            if takes_more(maker):
                more = {key: key.partition(".")[2] for key in said if key.startswith(f"{section}.")}
                known = {*skip, *arguments(maker)}
                free = {
                    key: _option(name, Any) for key, name in more.items() if name.isidentifier() and name not in known
                }
                self.known = {**free, **self.known}

    def _add(self, section: str, maker: Entry, skip: set[str]) -> None:
        """Add the arguments that can be options: those with values that a file can hold and names that are free."""
        for name, argument in arguments(maker).items():
            key = f"{section}.{name}"
            if name in skip:
                continue
            if key in self.known:
                if argument.default is argument.empty:
                    title = f"[{section}] {self.names[section]}"
                    raise ValueError(f"{title} has an argument {name!r}, but {key} is taken; give it another name")
            elif argument.default is None or argument.default is argument.empty or is_plain(argument.default):
                self.known[key] = argument
            else:
                self.fixed.add(key)

    def help(self) -> str:
        """Return the help about all options."""
        lines = [
            "usage: rvsm train [FILE] [--section.option VALUE …]",
            "",
            "Each section has the options of its chosen entry: --penalty.name tl1",
            "adds --penalty.a, and so on.",
            "",
            "the run:",
        ]
        for key, (_, _, text) in _RUN.items():
            lines += _described(key, self.known[key], text)
        for section, maker in self.sections.items():
            summary, texts = _documented(maker)
            title = [f"[{section}] {self.names[section]}:" if section in CHOICES else f"[{section}]:"]
            lines += ["", *title, *_wrapped(summary, "  "), ""]
            if section in CHOICES:
                texts["name"] = f"one of {', '.join(CHOICES[section].entries)}."
            texts = {"weights": _WEIGHTS, **texts} if section == "model" else texts
            for key, option in self.known.items():
                if key.startswith(f"{section}."):
                    lines += _described(key, option, texts.get(option.name, ""))
        return "\n".join([*lines, ""])


def unknown_key(key: str, known: Collection[str]) -> str:
    """Return the message about an unknown key."""
    section, _, option = key.partition(".")
    near = [name for name in known if name.startswith(f"{section}.")]
    if key == "base":
        return "base is the first line of a TOML file that builds on another file; it cannot be used here"
    if not option:
        return _without_section(key, known)
    if section not in (*CHOICES, *PLAIN):
        return f"unknown section {section!r}; {_nearest(section, [*CHOICES, *PLAIN])}"
    if not near:
        with_it = " or ".join(name for name, maker in CHOICES["method"].entries.items() if takes(maker, section))
        return f"{key}: the chosen method has no {section}; leave the section out, or choose {with_it}"
    return _misplaced(key, known) or f"unknown key {key!r}; {_nearest(key, near)}"


def _without_section(key: str, known: Collection[str]) -> str:
    """Return the message about an unknown key that names no section."""
    if key in (*CHOICES, *PLAIN):
        option = "name" if key in CHOICES else "option"
        return f"[{key}] is a section: write [{key}] and its options below, or --{key}.{option}"
    if key in ("run", "runs"):
        return f"unknown key {key!r}; the folder of a run is rvsm train --run, that of several rvsm compare --runs"
    always = [f"{section}.{key}" for section, maker in PLAIN.items() if takes(maker, key)]
    if inside := dict.fromkeys([*always, *(name for name in known if name.partition(".")[2] == key)]):
        return f"unknown key {key!r}; did you mean {' or '.join(map(repr, inside))}?"
    return f"unknown key {key!r}; {_nearest(key, [name for name in known if '.' not in name])} and the sections"


def _option(name: str, kind: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _documented(maker: Entry) -> tuple[str, dict[str, str]]:
    """Return the summary of a callable's docstring, and the descriptions of its arguments."""
    import docstring_parser

    code = origin(maker)
    classes = [*reversed(code.__mro__)] if isinstance(code, type) else []
    documents = [one.__doc__ for one in (*classes, *(vars(one).get("__init__") for one in classes), code)]
    params = [param for document in documents for param in docstring_parser.parse(document or "").params]
    summary = (inspect.getdoc(code) or "").partition("\n\n")[0].removeprefix("Return ").removesuffix(".")
    return summary, {param.arg_name: param.description or "" for param in params}


def _described(key: str, option: Parameter, text: str) -> Iterator[str]:
    """Iterate over the lines of help about an option."""
    kind = re.sub(r"\ban? ", "", kind_of(option.annotation).words)
    silent = option.default is option.empty or (option.default is None and "null" not in kind)
    shown = "" if silent else f", default: {_shown(option.default)}"
    flag = f"  --{key} {option.name.upper()}"
    lines = _wrapped(f"{text} ({kind}{shown})", " " * 24)
    yield flag if len(flag) > 22 else f"{flag:24}{lines.pop(0).lstrip()}"
    yield from lines


def _shown(default: Any) -> str:
    return default if isinstance(default, str) else json.dumps(None if default is None else plain(default))


def _wrapped(text: str, indent: str) -> list[str]:
    """Wrap a string into lines; docstring markup is removed, and names are not broken at hyphens."""
    text = " ".join(text.replace("`", "").split())
    return textwrap.wrap(text, 80, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _misplaced(key: str, known: Collection[str]) -> str | None:
    """Return why a key of a known name cannot be used here."""
    section, _, option = key.partition(".")
    if key == "penalty.lam" and "budget.sparsity" in known:
        return "penalty.lam and a budget exclude each other: the target sets λ; leave one of them out"
    if key == "method.sparsity":
        return "unknown key 'method.sparsity'; with rvsm and magnitude the target is budget.sparsity"
    if section == "method" and option in CHOICES:
        return f"{key} is chosen in a section of its own: write --{option}.name, or [{option}] and name in a file"
    if section in CHOICES and option in CHOICES[section].given:
        return f"{key} is decided by the rest of the training; leave it out"
    entries = CHOICES[section].entries if section in CHOICES else {}
    if owners := [name for name, maker in entries.items() if takes(maker, option)]:
        return f"{key} is an option of {section}.name = {' or '.join(map(repr, owners))}, which is not chosen"
    return None


def _nearest(word: str, known: Collection[str]) -> str:
    near = get_close_matches(word, known, 1, cutoff=0.5)
    return f"{f'did you mean {near[0]!r}? ' if near else ''}there are {', '.join(known)}"
