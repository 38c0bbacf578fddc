"""The options that there are: the arguments of the chosen entries, as a parser of flags knows them."""

import argparse
import functools
import inspect
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping
from inspect import Parameter
from typing import Any

from jsonargparse import ArgumentParser, DefaultHelpFormatter

from rvsm.config.messages import words
from rvsm.config.plain import is_plain, plain
from rvsm.config.sections import CHOICES, PLAIN, Entry, arguments, entry, is_own, needs, takes, takes_more
from rvsm.models import require_allowed

Flag = tuple[str, Any]
"""A key such as "penalty.lam" and its value, a string where it comes from the command line."""


class Options:
    """The options that there are, once the names in the flags have chosen their entries.

    Args:
        flags: what the user says.
        allowed: the models of the user's own, as module:callable, that may be imported.
        everything: include options that exclude each other, λ and a budget, for the help.

    Attributes:
        parser: what reads flags.
        sections: the names of the sections.
        types: the type of each option, by its key.
        defaults: the default of each option that has one.
        fixed: arguments that keep their default, since no file of options could hold it.

    """

    def __init__(self, flags: Iterable[Flag], *, allowed: Collection[str] = (), everything: bool = False) -> None:
        said = dict(flags)
        if is_own(model := self._name("model", said)):
            require_allowed(model, allowed)
        self.types: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.fixed: set[str] = set()
        self.parser = ArgumentParser(
            prog="rvsm train [FILE]",
            usage="rvsm train [FILE] [--section.option VALUE …]",
            description="Options are those of the chosen entries: --penalty.name tl1 adds --penalty.a, and so on.",
            formatter_class=_Help,
            exit_on_error=False,
            add_help=False,
            allow_abbrev=False,
        )
        general = self.parser.add_argument_group("the run")
        self._add(general, "name", str, default=None, help="what the run is called (default: that of the file)")
        self._add(general, "seed", int, default=0, help="of weights, order, augmentation and validation images")
        method = entry("method", self._name("method", said))
        budgeted = takes(method, "budget") and (everything or any(key.startswith("budget.") for key in said))
        self.sections = ["data", "model", "optimizer", "schedule", "training", "augment", "method"]
        penalised = needs(method, "penalty") or any(key.startswith("penalty.") for key in said)
        if takes(method, "penalty") and (penalised or everything):
            self.sections.append("penalty")
        if takes(method, "groups"):
            self.sections.append("groups")
        if budgeted:
            self.sections.append("budget")
        for section in self.sections:
            if section in PLAIN:
                self._section(section, PLAIN[section], f"[{section}]", said, skip={"steps"})
                continue
            known, name = CHOICES[section], self._name(section, said)
            self._add(
                self.parser.add_argument_group(f"[{section}]"),
                f"{section}.name",
                str,
                default=known.default,
                help=f"one of {', '.join(known.entries)}",
            )
            skip = set(known.given)
            if section == "model" and not takes(entry(section, name), "weights"):
                self._add_weights()
            if section == "penalty" and budgeted and not everything:
                skip.add("lam")  # the budget sets it
            if section == "method" and takes(method, "budget"):
                skip.add("sparsity")  # it is budget.sparsity
            self._section(section, entry(section, name), f"[{section}] {name}", said, skip=skip)
        if everything:
            for action in self.parser._actions:
                action.required = False  # some exclude each other

    def is_default(self, key: str, value: Any) -> bool:
        """Return whether a value is what the option is anyway; it need not be read, and may be one such as inf."""
        default = self.defaults.get(key)
        return default is not None and repr(plain(default)) == repr(value)

    def _name(self, section: str, said: Mapping[str, Any]) -> str:
        return str(said.get(f"{section}.name", CHOICES[section].default))

    def _section(self, section: str, maker: Entry, title: str, said: Mapping[str, Any], *, skip: set[str]) -> None:
        options = self._options(section, maker, title, skip)
        if takes_more(maker):
            taken = [key.removeprefix(f"{section}.") for key in self.types]
            known = {*taken, *skip, *arguments(maker)}
            more = [key.removeprefix(f"{section}.") for key in said if key.startswith(f"{section}.")]
            options += [Parameter(n, Parameter.KEYWORD_ONLY) for n in more if n.isidentifier() and n not in known]
        added = self.parser.add_function_arguments(_function(maker, options), section, fail_untyped=False)
        if (group := (self.parser.groups or {}).get(section)) is not None:
            group.title, group.description = title, group.title
        for action in self.parser._actions:
            if action.dest == section:
                action.help = argparse.SUPPRESS  # jsonargparse's own way to give a section as a file
            elif action.dest in added:
                self.types[action.dest] = getattr(action, "_typehint", action.type)
        self.defaults |= {f"{section}.{p.name}": p.default for p in options if p.default is not p.empty}

    def _options(self, section: str, maker: Entry, title: str, skip: set[str]) -> list[Parameter]:
        """Return the arguments that can be options: those that a file can hold, whose names are not taken."""
        options = []
        for name, parameter in arguments(maker).items():
            key = f"{section}.{name}"
            if name in skip:
                continue
            if key in self.types:
                if parameter.default is parameter.empty:
                    raise ValueError(f"{title} has an argument {name!r}, but {key} is taken; give it another name")
            elif parameter.default is None or parameter.default is parameter.empty or is_plain(parameter.default):
                options.append(parameter)
            else:
                self.fixed.add(key)
        return options

    def _add_weights(self) -> None:
        self._add(
            self.parser.add_argument_group("[model] first weights"),
            "model.weights",
            str,
            default=None,
            help="weights to begin with: a .safetensors file, or the folder of a finished run of the same network",
        )

    def _add(self, group: Any, key: str, kind: type, **settings: Any) -> None:
        group.add_argument(f"--{key}", type=kind, **settings)
        self.types[key] = kind


class _Help(DefaultHelpFormatter):
    """Help for people who do not read Python: types in words, no marks of docstrings, no name broken at its hyphen."""

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        annotation = getattr(action, "_typehint", action.type)
        return _TYPE.sub(lambda found: f"({found[1]}{words(annotation)}{found[2]})", text)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(_plain(text).split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return super()._fill_text(_plain(text), width, indent)


_TYPE = re.compile(r"\((required, |)type: .*?(, default: .*|)\)$", re.DOTALL)
"""What jsonargparse adds to the help of an option."""


def _plain(text: str) -> str:
    return text.replace("`", "")


def _function(maker: Entry, parameters: Iterable[Parameter]) -> Entry:
    """Return a function of these arguments, for a parser that knows no other callables and reads their source."""
    origin: Any = maker.func if isinstance(maker, functools.partial) else maker

    def function() -> None: ...

    told = [
        p.replace(kind=p.KEYWORD_ONLY, annotation=Any if p.annotation is p.default is p.empty else p.annotation)
        for p in parameters
    ]
    function.__signature__ = inspect.Signature(told)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in told if p.annotation is not p.empty}
    function.__doc__ = origin.__doc__
    code = origin.__init__ if isinstance(origin, type) else origin  # type: ignore[misc]
    function.__module__ = code.__module__  # where annotations that are texts have their names from
    return function
