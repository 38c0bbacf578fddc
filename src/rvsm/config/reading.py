"""Read a configuration: a TOML file is a list of flags, the command line has more of them, and later ones win."""

import argparse
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import tomli_w
from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from rvsm.config.build import check
from rvsm.config.config import Choice, Config
from rvsm.config.messages import NO_TARGET, unknown_key, wrong_value
from rvsm.config.sections import CHOICES, PLAIN, Entry, entry, needs, takes
from rvsm.config.training import Augment, Training

Flag = tuple[str, Any]
"""A key such as "penalty.lam" and its value, a string where it comes from the command line."""


def read_config(file: Path | None = None, flags: Sequence[str] = ()) -> Config:
    """Return the configuration of a file, changed by flags of the command line.

    >>> read_config(flags=["--budget.sparsity", "0.9", "--training.epochs=3"]).training.epochs
    3
    """
    from_file = [] if file is None else _flags_of_file(file)
    given = [*from_file, *_flags_of_line(flags)]
    return _config(given, name="run" if file is None else file.stem, file=file, count=len(from_file))


def config_of(table: Mapping[str, Any]) -> Config:
    """Return the configuration of a table such as `Config.table` returns."""
    flags = _flags(table)
    return _config(flags, name="run", file=None, count=len(flags))


def as_toml(config: Config) -> str:
    """Return a configuration with all its options as the text of a file.

    >>> config = read_config(flags=["--budget.sparsity", "0.9"])
    >>> config_of(tomllib.loads(as_toml(config))) == config
    True
    """
    return tomli_w.dumps(config.table())


def help_of(flags: Sequence[str], file: Path | None = None) -> str:
    """Return the options of a training, those of the entries that file and flags choose."""
    given = [*([] if file is None else _flags_of_file(file)), *_flags_of_line(flags)]
    return Options(given, everything=True).parser.format_help()


class Options:
    """The options that there are, once the names in the flags have chosen their entries.

    Args:
        flags: what the user says.
        everything: include options that exclude each other, λ and a budget, for the help.

    """

    def __init__(self, flags: Iterable[Flag], *, everything: bool = False) -> None:
        said = dict(flags)
        self.types: dict[str, Any] = {}
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
                self._section(section, PLAIN[section], f"[{section}]", skip={"steps"})
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
            if section == "penalty" and budgeted and not everything:
                skip.add("lam")  # the budget sets it
            if section == "method" and takes(method, "budget"):
                skip.add("sparsity")  # it is budget.sparsity
            self._section(section, entry(section, name), f"[{section}] {name}", skip=skip)
        if everything:
            for action in self.parser._actions:
                action.required = False  # some exclude each other

    def _name(self, section: str, said: Mapping[str, Any]) -> str:
        return str(said.get(f"{section}.name", CHOICES[section].default))

    def _section(self, section: str, maker: Entry, title: str, *, skip: set[str]) -> None:
        parser, arguments = self.parser, _arguments(maker)
        add = parser.add_class_arguments if isinstance(maker, type) else parser.add_function_arguments
        add(maker, section, skip={name for name in arguments if name in skip}, fail_untyped=False)
        if (group := (parser.groups or {}).get(section)) is not None:
            group.title, group.description = title, group.title
        for action in parser._actions:
            if action.dest == section:
                action.help = argparse.SUPPRESS  # jsonargparse's own way to give a section as a file
        for name, annotation in arguments.items():
            if name not in skip:
                self.types[f"{section}.{name}"] = annotation

    def _add(self, group: Any, key: str, kind: type, **settings: Any) -> None:
        group.add_argument(f"--{key}", type=kind, **settings)
        self.types[key] = kind


class _Help(DefaultHelpFormatter):
    """Help in which no name is broken at its hyphen."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _config(flags: list[Flag], *, name: str, file: Path | None, count: int) -> Config:
    """Return the configuration of flags, the first ``count`` of which come from the file."""
    options = Options(flags)
    for i, (key, _) in enumerate(flags):
        if key not in options.types:
            raise ValueError(unknown_key(key, options.types, f"{file}: " if file is not None and i < count else ""))
    try:
        found = options.parser.parse_args([f"--{key}={_text(value)}" for key, value in flags])
    except argparse.ArgumentError as error:
        raise ValueError(wrong_value(str(error), dict(flags), options.types)) from None
    choices = {
        section: Choice(found[section]["name"], {k: v for k, v in _plain(found[section]).items() if k != "name"})
        for section in options.sections
        if section in CHOICES
    }
    for section, choice in choices.items():
        _require_no_null(section, choice)
    if (path := choices["data"].options.get("path")) is not None:  # so that a run can be resumed from anywhere
        place = str(Path(path).expanduser().resolve())
        choices["data"] = Choice(choices["data"].name, {**choices["data"].options, "path": place})
    config = Config(
        name=found["name"] or name,
        seed=found["seed"],
        data=choices["data"],
        model=choices["model"],
        optimizer=choices["optimizer"],
        schedule=choices["schedule"],
        training=Training(**_plain(found["training"])),
        augment=Augment(**_plain(found["augment"])),
        method=choices["method"],
        penalty=choices.get("penalty"),
        groups=choices.get("groups"),
        budget=_plain(found["budget"]) if "budget" in options.sections else None,
    )
    _require_target(config)
    check(config)
    return config


def _require_no_null(section: str, choice: Choice) -> None:
    """Raise if an option is null where that is not its default: a file of options, which a run keeps, has no null."""
    for name, parameter in inspect.signature(entry(section, choice.name)).parameters.items():
        if name in choice.options and choice.options[name] is None and parameter.default is not None:
            raise ValueError(
                f"{section}.{name} is null, but the files in which runs keep their options have no null; let"
                f" {choice.name} take another value for it, such as 0 or an empty text, or make null its default"
            )


def _require_target(config: Config) -> None:
    """Raise unless the method has what it needs to know how many zeros are wanted."""
    if config.method.name == "rvsm" and config.budget is None and config.method.options.get("beta") is None:
        raise ValueError(NO_TARGET)
    if config.method.name == "magnitude" and config.budget is None:
        raise ValueError("magnitude pruning needs a target: give --budget.sparsity 0.9")
    if config.method.name == "admm" and (config.penalty is None) == (config.method.options.get("sparsity") is None):
        raise ValueError(
            "admm needs either a constraint, --method.sparsity 0.6, or a penalty, --penalty.name and --penalty.lam"
        )


# From files and lines to flags


def _flags_of_file(file: Path) -> list[Flag]:
    try:
        with file.open("rb") as opened:
            return _flags(tomllib.load(opened))
    except FileNotFoundError:
        raise ValueError(f"there is no file {file}; give a TOML file such as those in experiments/") from None
    except IsADirectoryError:
        raise ValueError(f"{file} is a folder; give a TOML file, or use rvsm resume {file} to continue a run") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not a TOML file: {error}") from None


def _flags(table: Mapping[str, Any]) -> list[Flag]:
    flags: list[Flag] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            flags += [(f"{key}.{option}", setting) for option, setting in value.items()]
        else:
            flags.append((key, value))
    return flags


def _flags_of_line(words: Sequence[str]) -> list[Flag]:
    flags: list[Flag] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise ValueError(f"expected --section.option VALUE but found {word!r}; a file comes before the options")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not rest or re.match(r"--[a-z]", rest[0]):
                raise ValueError(f"--{key} needs a value: --{key} VALUE")
            value = rest.pop(0)
        flags.append((key, value))
    return flags


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _plain(found: Namespace) -> dict[str, Any]:
    """Return the options of a section as plain values, as a file would have them."""
    return {key: _value(value) for key, value in found.as_dict().items()}


def _value(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_value(part) for part in value]
    return value


def _arguments(maker: Entry) -> dict[str, Any]:
    target = maker.__init__ if isinstance(maker, type) else maker  # type: ignore[misc]
    hints = get_type_hints(target)
    return {
        name: hints.get(name, Any)
        for name, parameter in inspect.signature(maker).parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
