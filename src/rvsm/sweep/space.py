"""The space that a sweep searches: ranges and choices of options, with the types of the configuration."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from rvsm.config import Config, read_config
from rvsm.config.options import Options, unknown_key
from rvsm.config.sections import is_own
from rvsm.config.settings import of_file, of_line
from rvsm.config.values import typed
from rvsm.models import require_allowed

_MOST_CORNERS = 256
"""Up to this number, all combinations of ends and choices are checked; beyond it, those of each two parameters."""


@dataclass(frozen=True)
class Range:
    """All numbers between two ends, which are included; integers if the ends are."""

    name: str
    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether it holds only integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def values(self) -> list[int] | None:
        """All its values if they can be counted, else None."""
        return list(range(int(self.low), int(self.high) + 1)) if self.whole else None

    @property
    def corners(self) -> tuple[str, ...]:
        """The ends, as words of a command line."""
        return repr(self.low), repr(self.high)

    def __contains__(self, value: object) -> bool:
        return type(value) is (int if self.whole else float) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.name}={self.low!r}:{self.high!r}{':log' * self.log}"


@dataclass(frozen=True)
class Choices:
    """A few values, as words of a command line; the configuration gives them their types."""

    name: str
    words: tuple[str, ...]

    @property
    def values(self) -> list[str]:
        """All its values."""
        return list(self.words)

    @property
    def corners(self) -> tuple[str, ...]:
        """All its values: each may contradict another option."""
        return self.words

    def __contains__(self, value: object) -> bool:
        return value in self.words

    def __str__(self) -> str:
        return f"{self.name}={','.join(self.words)}"


Parameter = Range | Choices


class Asked(NamedTuple):
    """A parameter as the user wrote it, before the type of its option is known."""

    name: str
    words: tuple[str, ...]
    range: bool = False
    log: bool = False


class Space(tuple[Parameter, ...]):
    """The parameters of a sweep."""

    __slots__ = ()

    @property
    def names(self) -> list[str]:
        """The options that the sweep changes."""
        return [parameter.name for parameter in self]

    @property
    def size(self) -> int | None:
        """The number of combinations if they can be counted, else None."""
        counts = [None if (values := parameter.values) is None else len(values) for parameter in self]
        known = [count for count in counts if count is not None]
        return prod(known) if len(known) == len(counts) else None

    def combination(self, index: int) -> dict[str, Any]:
        """Return one of the combinations of a space that can be counted; the last parameter changes first.

        >>> Space([Choices("penalty.name", ("l0", "tl1")), Range("training.epochs", 5, 6)]).combination(1)
        {'penalty.name': 'l0', 'training.epochs': 6}
        """
        found: dict[str, Any] = {}
        for parameter in reversed(self):
            values = parameter.values
            assert values is not None
            index, position = divmod(index, len(values))
            found[parameter.name] = values[position]
        return {name: found[name] for name in self.names}

    def corners(self) -> Iterator[dict[str, str]]:
        """Iterate over combinations of the ends of ranges and all choices, as words.

        If there are too many, each two parameters are combined while the others stay at their first: options that
        contradict each other, such as ramp and heal, do so in pairs.
        """
        sides = {parameter.name: parameter.corners for parameter in self}
        if prod(map(len, sides.values())) <= _MOST_CORNERS:
            yield from (dict(zip(sides, values, strict=True)) for values in product(*sides.values()))
            return
        first = {name: words[0] for name, words in sides.items()}
        for one, other in combinations(sides, 2):
            for a, b in product(sides[one], sides[other]):
                yield first | {one: a, other: b}


def asked(text: str) -> Asked:
    """Read ``NAME=low:high``, ``NAME=low:high:log`` or ``NAME=a,b,c``.

    >>> asked("optimizer.lr=0.01:1:log")
    Asked(name='optimizer.lr', words=('0.01', '1'), range=True, log=True)
    >>> asked("schedule.drops=[0.5, 0.75],[0.4]").words
    ('[0.5, 0.75]', '[0.4]')
    """
    name, equals, rest = text.partition("=")
    name = name.strip().removeprefix("--")
    if not equals or not name:
        raise ValueError(f"--param expects NAME=low:high, NAME=low:high:log or NAME=a,b,c but got {text!r}")
    words = tuple(word.strip() for word in _split(rest))
    parts = [part.strip() for part in rest.split(":")]
    if len(words) == 1 and len(parts) in (2, 3) and any(map(_is_number, parts[:2])):
        if len(parts) == 3 and parts[2] != "log":
            raise ValueError(f"--param {text}: after low:high only :log can follow but {parts[2]!r} does")
        return Asked(name, (parts[0], parts[1]), range=True, log=len(parts) == 3)
    if "" in words:
        raise ValueError(f"--param {text}: a value is empty; give values such as {name}=a,b,c")
    if len(words) < 2:
        fixed = f"a value that is the same in all trials is a flag: --{name} {words[0]}"
        raise ValueError(f"--param {text}: give a range low:high or at least two values a,b; {fixed}")
    if twice := [word for i, word in enumerate(words) if word in words[:i]]:
        raise ValueError(f"--param {text}: {twice[0]!r} is given twice")
    return Asked(name, words)


def read_space(
    texts: Sequence[str],
    file: Path | None,
    flags: Sequence[str],
    *,
    allow_import: Collection[str] = (),
    received: bool = False,
) -> tuple[Space, Config]:
    """Return the space of ``--param`` arguments on top of a file and flags, and the configuration of a corner.

    All corners are read as configurations, so that what `rvsm train` would refuse is refused now, in its words.

    Args:
        texts: the arguments, as `asked` reads them.
        file: the configuration file, if there is one.
        flags: as on the command line of `rvsm train`.
        allow_import: the user's own models that may be imported.
        received: whether the arguments come from a storage; the models among them are then not allowed by being named.

    """
    found = [asked(text) for text in texts]
    if not found:
        raise ValueError("a sweep needs at least one parameter: --param budget.sparsity=0.8:0.99")
    names = [one.name for one in found]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"--param {twice[0]} is given twice; give all its values at once")
    if "name" in names:
        raise ValueError("--param name: a sweep names its trials; give one --name for the whole sweep")
    settings = [*([] if file is None else of_file(file)), *of_line(flags)]
    said = {setting.key: setting.value for setting in settings} | {one.name: one.words[0] for one in found}
    models = [word for one in found if one.name == "model.name" for word in one.words]
    for model in models if received else ():
        if is_own(model):
            require_allowed(model, allow_import)
    allowed = {*allow_import, *(s.value for s in settings if s.key == "model.name" and s.word), *models}
    options = Options(said, allowed=allowed)
    space = Space(_typed(one, options) for one in found)
    read = [read_config(file, [*flags, *words(corner)], allow_import=allowed) for corner in space.corners()]
    for config in read:
        if not config.training.validation:
            raise ValueError("a sweep compares trials on validation images; give a --training.validation above 0")
    return space, read[0]


def words(values: Mapping[str, Any]) -> list[str]:
    """Return values of parameters as flags of a command line.

    >>> words({"penalty.name": "l0", "budget.sparsity": 0.93})
    ['--penalty.name=l0', '--budget.sparsity=0.93']
    """
    return [f"--{name}={value if isinstance(value, str) else repr(value)}" for name, value in values.items()]


def _typed(one: Asked, options: Options) -> Parameter:
    """Give the ends of a range the type of their option."""
    if one.name in options.fixed or one.name not in options.known:
        raise ValueError(unknown_key(one.name, options.known))
    if not one.range:
        return Choices(one.name, one.words)
    annotation = options.known[one.name].annotation
    low, high = (typed(one.name, word, annotation, word=True) for word in one.words)
    written = f"{one.name}={':'.join(one.words)}"
    if not all(type(end) in (int, float) for end in (low, high)):
        raise ValueError(f"--param {written}: {one.name} is not a number; give its values as a,b,c")
    if type(low) is not type(high):  # an option of any type
        low, high = float(low), float(high)
    if not low < high:
        raise ValueError(f"--param {written}: the lower end comes first, and the ends differ")
    if one.log and low <= 0:
        raise ValueError(f"--param {written}:log: on a logarithmic scale the lower end must be above 0")
    return Range(one.name, low, high, one.log)


def _split(text: str) -> list[str]:
    """Split a string at commas that are outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        else:
            depth += (c in "[{(") - (c in "]})")
        if c == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
