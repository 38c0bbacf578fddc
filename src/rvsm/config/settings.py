"""The settings in files and on the command line, as a list in which later ones win."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rvsm.config.config import flat
from rvsm.records.reading import parse


class Setting(NamedTuple):
    """The setting of one option."""

    key: str  # such as "penalty.lam"
    value: Any  # a TOML value, or a word of the command line
    word: bool = False  # whether it comes from the command line
    base: Path | None = None  # the base file that it comes from, if any


def split(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the files and the flags of a command line: each flag has one value, and all other words are files.

    >>> split(["a.toml", "--seed", "3", "--name=b"])
    ([PosixPath('a.toml')], ['--seed=3', '--name=b'])
    """
    files, flags = [], []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            files.append(Path(word))
        elif not word.startswith("--"):
            raise ValueError(f"expected --section.option VALUE but found {word!r}")
        elif "=" in word:
            flags.append(word)
        elif not rest or re.match(r"--[a-z]", rest[0]):
            raise ValueError(f"{word} needs a value: {word} VALUE")
        else:
            flags.append(f"{word}={rest.pop(0)}")
    return files, flags


def of_line(words: Sequence[str]) -> list[Setting]:
    """Return the settings of a command line without files."""
    files, flags = split(words)
    if files:
        raise ValueError(f"expected --section.option VALUE but found '{files[0]}'; a file comes before the options")
    parts = [flag.removeprefix("--").partition("=") for flag in flags]
    return [Setting(key, value, word=True) for key, _, value in parts]


def of_table(table: Mapping[str, Any], *, base: Path | None = None) -> list[Setting]:
    """Return the settings of a table of sections."""
    return [Setting(key, value, base=base) for key, value in flat(table).items()]


def of_file(file: Path) -> list[Setting]:
    """Return the settings of a file, after those of its base, which come after those of the base's base, and so on.

    A base is named relative to the file that names it. Its name is not inherited, since runs are kept by their name.
    """
    table, chain = _table(file), [file]
    settings = of_table({key: value for key, value in table.items() if key != "base"})
    while "base" in table:
        last, named = chain[-1], table["base"]
        if not isinstance(named, str):
            raise ValueError(f'{last}: base must be the path of a TOML file, such as "dense.toml", but is {named!r}')
        base = last.parent / named
        if not base.is_file():  # a pipe would never end
            raise ValueError(f"{last}: its base {base} is not a file; write the path relative to the folder of {last}")
        if base.resolve() in [one.resolve() for one in chain]:
            raise ValueError(f"{file}: its bases form a cycle: {' → '.join(map(str, [*chain, base]))}")
        table = _table(base)
        chain.append(base)
        own = {key: value for key, value in table.items() if key not in ("base", "name")}
        settings = [*of_table(own, base=base), *settings]
    return settings


def _table(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = parse(tomllib.loads, file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no file {file}; give a TOML file such as those in experiments/") from None
    except IsADirectoryError:
        raise ValueError(f"{file} is a folder; give a TOML file, or use rvsm resume {file} to continue a run") from None
    except ValueError as error:
        raise ValueError(f"{file} is not a TOML file: {error}") from None
    return found
