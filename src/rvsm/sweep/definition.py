"""What a sweep is: its options, parameters and goals, kept in the storage, which all its processes share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from rvsm.config import Config
from rvsm.config.config import OF_THE_MACHINE, flat
from rvsm.config.settings import of_file, of_line
from rvsm.records.values import LINE, LIST, TABLE
from rvsm.sweep.goals import check_goals
from rvsm.sweep.space import Space, read_space

FORMAT = 1
"""The format of a definition; no other format is read."""
BASE = "base.toml"
"""The file in the folder of a sweep with the options that all trials share."""


@dataclass(frozen=True)
class Definition:
    """A sweep.

    Attributes:
        name: its name, also in a storage that several sweeps share.
        seed: decides which values are tried; with the default option ``seed``, that of the trainings, too.
        options: what all trials share, by "section.key": only what the user has set.
        space: what they do not share.
        goals: what is maximised.
        pruning: whether hopeless trials are stopped early.

    """

    name: str
    seed: int
    options: Mapping[str, Any]
    space: Space
    goals: tuple[str, ...]
    pruning: bool

    @classmethod
    def of_command(
        cls,
        params: Sequence[str],
        file: Path | None,
        flags: Sequence[str],
        *,
        goals: Sequence[str] = (),
        pruning: bool = True,
        allow_import: Collection[str] = (),
    ) -> "Definition":
        """Read the arguments of the command; what no training could use is refused."""
        space, corner = read_space(params, file, flags, allow_import=allow_import)
        return cls._of(space, corner, file, flags, check_goals(goals), pruning=pruning)

    @classmethod
    def of_storage(cls, kept: Any, base: Path, *, allow_import: Collection[str] = ()) -> "Definition":
        """Read the definition in a storage, and the base file in the folder; neither is trusted."""
        if TABLE.read(kept) is None or kept.get("format") != FORMAT:
            raise ValueError("the storage holds no sweep of this version of rvsm; give another storage or folder")
        params = [LINE.needed({"parameters": text}, "parameters") for text in LIST.needed(kept, "parameters")]
        goals = [LINE.needed({"goals": name}, "goals") for name in LIST.needed(kept, "goals")]
        space, corner = read_space(params, base, (), allow_import=allow_import, received=True)
        return cls._of(space, corner, base, (), check_goals(goals), pruning=kept.get("pruning") is True)

    @classmethod
    def _of(
        cls,
        space: Space,
        corner: Config,
        file: Path | None,
        flags: Sequence[str],
        goals: tuple[str, ...],
        *,
        pruning: bool,
    ) -> "Definition":
        """Keep the options that were set, with the typed values that the corner has: paths are absolute there."""
        table = flat(corner.table())
        keys = {setting.key for setting in [*([] if file is None else of_file(file)), *of_line(flags)]} - {"name"}
        options = {key: table[key] for key in sorted(keys) if key in table and key not in space.names}
        seed = 0 if "seed" in space.names else corner.seed
        return cls(corner.name, seed, options, space, goals, pruning)

    def kept(self) -> dict[str, Any]:
        """Return the definition as JSON for the storage; options that belong to a machine are left out."""
        own = {f"{section}.{key}" for section, keys in OF_THE_MACHINE.items() for key in keys}
        return {
            "format": FORMAT,
            "options": {key: value for key, value in self.options.items() if key not in own},
            "parameters": [str(parameter) for parameter in self.space],
            "goals": list(self.goals),
            "pruning": self.pruning,
        }

    def base(self) -> str:
        """Return the contents of a file with the options that all trials share."""
        table: dict[str, Any] = {"name": self.name}
        for key, value in self.options.items():
            section, dot, option = key.partition(".")
            if dot:
                table.setdefault(section, {})[option] = value
            else:
                table[key] = value
        return tomli_w.dumps(table)


def changes(theirs: Any, ours: Mapping[str, Any]) -> list[str]:
    """Return in what two kept definitions differ, as sentences show it.

    >>> changes({"goals": ["accuracy"], "options": {"seed": 1}}, {"goals": ["accuracy"], "options": {"seed": 2}})
    ['seed 1 → 2']
    """
    one, other = ({**(TABLE.at(kept, "options") or {}), **_rest(kept)} for kept in (theirs, ours))
    return [
        f"{key} {one.get(key, 'unset')} → {other.get(key, 'unset')}"
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key)
    ]


def _rest(kept: Any) -> dict[str, Any]:
    rest = {key: value for key, value in (TABLE.read(kept) or {}).items() if key != "options"}
    return {key: " ".join(map(str, value)) if isinstance(value, list) else value for key, value in rest.items()}
