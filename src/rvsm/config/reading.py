"""Read a configuration in one pass: settings choose the available options, then become their values."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from typing import Any

import tomli_w

from rvsm.config.build import check
from rvsm.config.config import Choice, Config
from rvsm.config.options import Options, unknown_key
from rvsm.config.sections import CHOICES, entry, is_own, takes
from rvsm.config.settings import Setting, of_file, of_line, of_table
from rvsm.config.training import Augment, Training
from rvsm.config.values import plain, typed
from rvsm.models import NotAllowedError

_NO_TARGET = (
    "the method needs to know how many zeros you want: give a target sparsity, --budget.sparsity 0.9 (rvsm,"
    " magnitude, acdc), a target speed, --budget.speedup 5, or a penalty's weight, --penalty.lam 1e-6, with rvsm also"
    " --method.beta 0.08"
)


def read_config(file: Path | None = None, flags: Sequence[str] = (), *, allow_import: Collection[str] = ()) -> Config:
    """Return the configuration of a file and its bases, changed by flags of the command line.

    Args:
        file: a TOML file.
        flags: as on the command line, ``--section.option VALUE``.
        allow_import: the models, as module:callable, that the file may import. A model that the flags name is
            allowed, too.

    >>> read_config(flags=["--budget.sparsity", "0.9", "--training.epochs=3"]).training.epochs
    3

    """
    line = of_line(flags)
    allowed = {*allow_import, *_models(line)}
    if file is None:
        return _config(line, name="run", allowed=allowed)
    settings = [*of_file(file), *line]
    try:
        return _config(settings, name=file.stem, allowed=allowed)
    except ValueError as error:
        place = " ".join([str(file), "with", *flags]) if flags else file
        raise ValueError(f"{place}: {error}") from None


def config_of(
    table: Mapping[str, Any],
    file: Path | None = None,
    *,
    flags: Sequence[str] = (),
    allow_import: Collection[str] = (),
) -> Config:
    """Return the configuration of a table such as `Config.table` returns, changed by flags of the command line.

    Args:
        table: all options; it has no base, since a run stores its complete configuration.
        file: the file that it comes from, for errors.
        flags: as on the command line.
        allow_import: the models, as module:callable, that the table may import.

    """
    try:
        return _config([*of_table(_of_today(table)), *of_line(flags)], name="run", allowed=allow_import)
    except NotAllowedError as error:
        raise NotAllowedError(str(error) if file is None else f"{file}: {error}") from None
    except ValueError as error:
        if file is None:
            raise
        raise ValueError(f"{file}: {error}; restore what rvsm train wrote there") from None


def described(table: Mapping[str, Any], file: Path | None = None, *, allow_import: Collection[str] = ()) -> Config:
    """Return the configuration of a table for comparison or display, not for building.

    The result is that of `config_of`, except that a user's own model that may not be imported is taken as written.
    """
    model = table.get("model")
    name = model.get("name") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(name, str) or not is_own(name) or name in allow_import:
        return config_of(table, file, allow_import=allow_import)
    rest = config_of({key: section for key, section in table.items() if key != "model"}, file)
    return replace(rest, model=Choice(name, {key: value for key, value in model.items() if key != "name"}))


def as_toml(config: Config) -> str:
    """Return a configuration with all its options as the contents of a file.

    >>> import tomllib
    >>> config = read_config(flags=["--budget.sparsity", "0.9"])
    >>> config_of(tomllib.loads(as_toml(config))) == config
    True
    """
    return tomli_w.dumps(config.table())


def help_of(flags: Sequence[str], file: Path | None = None, *, allow_import: Collection[str] = ()) -> str:
    """Return the help about the options of the entries that file and flags choose."""
    line = of_line(flags)
    said = {setting.key: setting.value for setting in [*([] if file is None else of_file(file)), *line]}
    return Options(said, allowed={*allow_import, *_models(line)}, everything=True).help()


def _models(line: Iterable[Setting]) -> set[str]:
    """Return the models that a command line names."""
    return {setting.value for setting in line if setting.key == "model.name"}


def _of_today(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add options to a saved table that did not exist when it was saved, with the behaviour of that time."""
    method = table.get("method")
    if isinstance(method, Mapping) and method.get("name") == "rvsm" and "gradient" not in method:
        return {**table, "method": {**method, "gradient": "w" if "budget" in table else "auto"}}
    return table


def _config(settings: Iterable[Setting], *, name: str, allowed: Collection[str]) -> Config:
    """Return the configuration of settings, in which later ones win; ``name`` is used unless a setting gives one."""
    said = {setting.key: setting for setting in settings}
    try:
        options = _options(said, allowed)
        config = _made(options, _values(options, said), name=name)
        config.table()  # raises if an option could not be stored in the folder of a run
    except RecursionError:
        raise ValueError("the options are nested too deeply") from None
    _require_target(config)
    check(config)
    return config


def _options(said: Mapping[str, Setting], allowed: Collection[str]) -> Options:
    """Return the options that the settings choose; each setting must have an option."""
    for section in CHOICES:
        chosen = said.get(f"{section}.name")
        if chosen is not None and not (section == "model" and is_own(str(chosen.value))):
            with _blaming(chosen):
                entry(section, str(chosen.value))
    options = Options({key: setting.value for key, setting in said.items()}, allowed=allowed)
    for key, setting in said.items():
        with _blaming(setting):
            if key in options.fixed:
                raise ValueError(f"{key} cannot be set: its default is not a string, number, list or table")
            if key not in options.known:
                raise ValueError(unknown_key(key, options.known))
    return options


def _values(options: Options, said: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the value of each option, in the declared type."""
    values = {key: option.default for key, option in options.known.items()}
    for key, setting in said.items():
        default = values[key]
        if default is not None and default is not Parameter.empty and repr(plain(default)) == repr(setting.value):
            continue  # the default may be a value that cannot be given, such as inf
        with _blaming(setting):
            values[key] = typed(key, setting.value, options.known[key].annotation, word=setting.word)
            if values[key] is None and default is not None:
                raise ValueError(
                    f"{key} is null, but the files in which runs keep their options have no null; let"
                    f" {options.names[key.partition('.')[0]]} take another value for it, such as 0 or an empty string,"
                    " or make null its default"
                )
    missing = [key for key, value in values.items() if value is Parameter.empty]
    if missing and missing[0] == "penalty.lam" and "method.beta" not in said:
        raise ValueError(_NO_TARGET)
    if missing:
        raise ValueError(f"{missing[0]} is missing: give --{missing[0]} on the command line, or write it in the file")
    return values


def _made(options: Options, values: Mapping[str, Any], *, name: str) -> Config:
    """Return the configuration with the values of all options."""
    sections: dict[str, dict[str, Any]] = {section: {} for section in options.sections}
    for key, value in values.items():
        section, _, option = key.partition(".")
        if option:
            sections[section][option] = value
    weights = None if takes(options.sections["model"], "weights") else sections["model"].pop("weights")
    if sections["data"].get("path") is not None:
        sections["data"]["path"] = _anywhere(sections["data"]["path"])
    if sections.get("budget", {}).get("speedup") is not None and sections["budget"]["by"] == "weights":
        sections["budget"]["by"] = "time"  # what the budget itself makes of it
    if sections.get("budget", {}).get("profile") is not None:
        sections["budget"]["profile"] = _anywhere(sections["budget"]["profile"])
    return Config(
        name=values["name"] or name,
        seed=values["seed"],
        training=Training(**sections.pop("training")),
        augment=Augment(**sections.pop("augment")),
        budget=sections.pop("budget", None),
        weights=None if weights is None else _anywhere(weights),
        **{section: Choice(chosen.pop("name"), chosen) for section, chosen in sections.items()},
    )


def _anywhere(path: str | Path) -> str:
    """Return an absolute path, so that a run can be resumed from any working directory."""
    return str(Path(path).expanduser().resolve())


def _require_target(config: Config) -> None:
    """Raise unless the options determine how many zeros the method should make."""
    method, options = config.method.name, config.method.options
    if method == "rvsm" and config.budget is None and options.get("beta") is None:
        raise ValueError(_NO_TARGET)
    maker = entry("method", method)
    if takes(maker, "budget") and not takes(maker, "penalty") and config.budget is None:
        raise ValueError(f"{method} needs a target: give --budget.sparsity 0.9, or --budget.speedup 5")
    if config.budget is not None and config.budget["sparsity"] is None and config.budget["speedup"] is None:
        raise ValueError(
            "budget.sparsity is missing: give --budget.sparsity 0.9, or a target speed, --budget.speedup 5, on the"
            " command line, or write it in the file"
        )
    if config.budget is not None and config.budget["profile"] is not None and config.budget["by"] != "time":
        raise ValueError("budget.profile belongs to a target speed: give --budget.speedup 5, or leave it out")
    if method == "admm" and (config.penalty is None) == (options.get("sparsity") is None):
        raise ValueError(
            "admm needs either a constraint, --method.sparsity 0.6, or a penalty, --penalty.name and --penalty.lam"
        )
    if method == "admm" and config.penalty is not None and options.get("rho") is None:
        raise ValueError("admm with a penalty, whose threshold depends on λ/ρ, needs ρ: give --method.rho 1")


@contextmanager
def _blaming(setting: Setting) -> Iterator[None]:
    """Name the base file of a refused setting in the error."""
    try:
        yield
    except ValueError as error:
        if setting.base is None:
            raise
        raise ValueError(f"{error} (in {setting.base}, its base)") from None
