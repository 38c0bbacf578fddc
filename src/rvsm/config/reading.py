"""Read a configuration: a TOML file is a list of flags, the command line has more of them, and later ones win."""

import argparse
import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from rvsm.config.build import check
from rvsm.config.config import Choice, Config, differences
from rvsm.config.messages import NO_TARGET, unknown_key, wrong_value
from rvsm.config.options import Flag, Options
from rvsm.config.sections import CHOICES, arguments, entry, is_own, takes
from rvsm.config.training import Augment, Training
from rvsm.models import NotAllowedError
from rvsm.records.reading import parse_toml


def read_config(file: Path | None = None, flags: Sequence[str] = (), *, allow_import: Collection[str] = ()) -> Config:
    """Return the configuration of a file, changed by flags of the command line.

    Args:
        file: a TOML file.
        flags: as on the command line, ``--section.option VALUE``.
        allow_import: the models, as module:callable, that the file may have imported. One that the flags name is
            allowed by that.

    >>> read_config(flags=["--budget.sparsity", "0.9", "--training.epochs=3"]).training.epochs
    3

    """
    line = _flags_of_line(flags)
    allowed = {*allow_import, *_models(line)}
    if file is None:
        return _config(line, name="run", allowed=allowed)
    given = [*_flags_of_file(file), *line]
    try:
        return _config(given, name=file.stem, allowed=allowed)
    except ValueError as error:
        place = " ".join([str(file), "with", *flags]) if flags else file
        raise ValueError(f"{place}: {error}") from None


def config_of(table: Mapping[str, Any], file: Path | None = None, *, allow_import: Collection[str] = ()) -> Config:
    """Return the configuration of a table such as `Config.table` returns; errors name the file that it is from."""
    try:
        return _config(_flags(_of_today(table)), name="run", allowed=allow_import)
    except NotAllowedError as error:
        raise NotAllowedError(str(error) if file is None else f"{file}: {error}") from None
    except ValueError as error:
        if file is None:
            raise
        raise ValueError(f"{file}: {error}; put back what rvsm train wrote there") from None


def _of_today(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a saved table with the options that there were not when it was saved, as they were then."""
    method = table.get("method")
    if isinstance(method, Mapping) and method.get("name") == "rvsm" and "gradient" not in method:
        return {**table, "method": {**method, "gradient": "w" if "budget" in table else "auto"}}
    return table


def described(table: Mapping[str, Any], file: Path | None = None, *, allow_import: Collection[str] = ()) -> Config:
    """Return the configuration of a table to compare or to tell, not to build.

    It is as `config_of` makes it; but a model of somebody's own that is not allowed to be imported is taken as it is
    written.
    """
    model = table.get("model")
    name = model.get("name") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(name, str) or not is_own(name) or name in allow_import:
        return config_of(table, file, allow_import=allow_import)
    rest = config_of({key: section for key, section in table.items() if key != "model"}, file)
    return replace(rest, model=Choice(name, {key: value for key, value in model.items() if key != "name"}))


def as_toml(config: Config) -> str:
    """Return a configuration with all its options as the text of a file.

    >>> config = read_config(flags=["--budget.sparsity", "0.9"])
    >>> config_of(tomllib.loads(as_toml(config))) == config
    True
    """
    return tomli_w.dumps(config.table())


def help_of(flags: Sequence[str], file: Path | None = None, *, allow_import: Collection[str] = ()) -> str:
    """Return the options of a training, those of the entries that file and flags choose."""
    line = _flags_of_line(flags)
    given = [*([] if file is None else _flags_of_file(file)), *line]
    return Options(given, allowed={*allow_import, *_models(line)}, everything=True).parser.format_help()


def _models(line: Sequence[Flag]) -> set[str]:
    """Return the models that a command line names."""
    return {value for key, value in line if key == "model.name"}


def _config(flags: list[Flag], *, name: str, allowed: Collection[str]) -> Config:
    """Return the configuration of flags as a run that keeps it in a file will have it back when it is resumed."""
    try:
        config = _read(flags, name=name, allowed=allowed)
        again = _read(_flags(tomllib.loads(as_toml(config))), name=name, allowed=allowed)
    except RecursionError:
        raise ValueError("the options are nested too deeply") from None
    if changes := differences(config, again):
        raise ValueError(
            f"the file in which a run keeps its options would change {', '.join(changes)}, and so would a resume;"
            " give other values"
        )
    _require_target(again)
    check(again)
    return again


def _read(flags: list[Flag], *, name: str, allowed: Collection[str]) -> Config:
    options = Options(flags, allowed=allowed)
    for key, _ in flags:
        if key in options.fixed:
            raise ValueError(f"{key} cannot be set: its default is no text, number, list or table, as options are")
        if key not in options.types:
            raise ValueError(unknown_key(key, options.types))
    said = {key: value for key, value in dict(flags).items() if not options.is_default(key, value)}
    try:
        found = options.parser.parse_args([f"--{key}={_text(value)}" for key, value in said.items()])
    except argparse.ArgumentError as error:
        raise ValueError(wrong_value(str(error), said, options.types)) from None
    for key, default in options.defaults.items():
        if key not in said:
            found[key] = default  # the very object, whatever the parser made of it
    choices = {}
    for section in options.sections:
        if section in CHOICES:
            chosen = dict(found[section].items(branches=True, nested=False))
            choices[section] = Choice(chosen.pop("name"), chosen)
            _require_no_null(section, choices[section])
    if (path := choices["data"].options.get("path")) is not None:
        choices["data"] = Choice(choices["data"].name, {**choices["data"].options, "path": _anywhere(path)})
    model, weights = choices["model"], None
    if not takes(entry("model", model.name), "weights"):  # otherwise it is the model's own option
        weights = model.options.get("weights")
        model = Choice(model.name, {key: value for key, value in model.options.items() if key != "weights"})
    return Config(
        name=found["name"] or name,
        seed=found["seed"],
        data=choices["data"],
        model=model,
        optimizer=choices["optimizer"],
        schedule=choices["schedule"],
        training=Training(**found["training"].as_dict()),
        augment=Augment(**found["augment"].as_dict()),
        method=choices["method"],
        penalty=choices.get("penalty"),
        groups=choices.get("groups"),
        budget=found["budget"].as_dict() if "budget" in options.sections else None,
        weights=None if weights is None else _anywhere(weights),
    )


def _anywhere(path: str | Path) -> str:
    """Return a path that is the same from any working directory, so that a run can be resumed from there."""
    return str(Path(path).expanduser().resolve())


def _require_no_null(section: str, choice: Choice) -> None:
    """Raise if an option is null where that is not its default: a file of options, which a run keeps, has no null."""
    for name, parameter in arguments(entry(section, choice.name)).items():
        if name in choice.options and choice.options[name] is None and parameter.default is not None:
            raise ValueError(
                f"{section}.{name} is null, but the files in which runs keep their options have no null; let"
                f" {choice.name} take another value for it, such as 0 or an empty text, or make null its default"
            )


def _require_target(config: Config) -> None:
    """Raise unless the method has what it needs to know how many zeros are wanted."""
    if config.method.name == "rvsm" and config.budget is None and config.method.options.get("beta") is None:
        raise ValueError(NO_TARGET)
    maker = entry("method", config.method.name)
    if takes(maker, "budget") and not takes(maker, "penalty") and config.budget is None:
        raise ValueError(f"{config.method.name} needs a target: give --budget.sparsity 0.9")
    if config.method.name == "admm" and (config.penalty is None) == (config.method.options.get("sparsity") is None):
        raise ValueError(
            "admm needs either a constraint, --method.sparsity 0.6, or a penalty, --penalty.name and --penalty.lam"
        )
    if config.method.name == "admm" and config.penalty is not None and config.method.options.get("rho") is None:
        raise ValueError("admm with a penalty, whose threshold depends on λ/ρ, needs ρ: give --method.rho 1")


# From files and lines to flags


def _flags_of_file(file: Path) -> list[Flag]:
    try:
        return _flags(parse_toml(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ValueError(f"there is no file {file}; give a TOML file such as those in experiments/") from None
    except IsADirectoryError:
        raise ValueError(f"{file} is a folder; give a TOML file, or use rvsm resume {file} to continue a run") from None
    except ValueError as error:
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
