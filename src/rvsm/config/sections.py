"""The sections of a configuration: registries of entries, whose signatures define the options."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from inspect import Parameter
from typing import Any, get_type_hints

from rvsm.config.training import Augment, Training
from rvsm.data import DATASETS
from rvsm.groups import GROUPS
from rvsm.models import MODELS
from rvsm.optimizers import OPTIMIZERS
from rvsm.penalties import PENALTIES
from rvsm.schedules import SCHEDULES
from rvsm.splitting import Budget, methods

Entry = Callable[..., Any]


@dataclass(frozen=True)
class Dense:
    """Plain training without sparsity, as a baseline."""


@dataclass(frozen=True)
class Section:
    """A part of a configuration."""

    entries: Mapping[str, Entry]  # the registry that ``name`` chooses from
    default: str  # the entry that is chosen by default
    given: frozenset[str] = frozenset()  # arguments of the entries that the rest of the training determines


CHOICES: dict[str, Section] = {
    "data": Section(DATASETS, "digits"),
    "model": Section(MODELS, "convnet", frozenset({"channels", "classes", "size"})),
    "optimizer": Section(OPTIMIZERS, "sgd"),
    "schedule": Section(SCHEDULES, "cosine"),
    "method": Section(
        {"dense": Dense, **methods()},
        "rvsm",
        frozenset({"model", "penalty", "groups", "budget", "steps", "epoch_steps", "example_input"}),
    ),
    "penalty": Section(PENALTIES, "l0"),
    "groups": Section(GROUPS, "element"),
}
"""Sections that begin with a ``name``."""

PLAIN: dict[str, type[Any]] = {"training": Training, "augment": Augment, "budget": Budget}
"""Sections without a choice."""


def is_own(model: str) -> bool:
    """Return whether the name of a model is a user's own, module:callable."""
    return ":" in model


def entry(section: str, name: str) -> Entry:
    """Return the entry with a name from the registry of a section; a model may also be a user's own module:callable."""
    entries = CHOICES[section].entries
    if name in entries:
        return entries[name]
    if section == "model" and is_own(name):
        from rvsm.models.user import find_callable

        return find_callable(name)
    near = get_close_matches(name, entries, 1)
    hint = f"did you mean {near[0]!r}? choose" if near else "choose"
    own = ", or your own as module:callable" if section == "model" else ""
    raise ValueError(f"unknown {section}.name {name!r}; {hint} from {', '.join(entries)}{own}")


def arguments(maker: Entry) -> dict[str, Parameter]:
    """Return the named arguments of a class, a function or another callable, with their types."""
    return {n: p for n, p in _signature(maker).items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def takes(maker: Entry, argument: str) -> bool:
    """Return whether a callable has an argument with this name."""
    return argument in arguments(maker)


def takes_more(maker: Entry) -> bool:
    """Return whether a callable takes arguments of any name, as with ``**kwargs``."""
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in _signature(maker).values())


def needs(maker: Entry, argument: str) -> bool:
    """Return whether a callable has an argument with this name and without a default."""
    found = arguments(maker).get(argument)
    return found is not None and found.default is Parameter.empty


def origin(maker: Entry) -> Any:
    """Return the class or function behind a callable, which has the docstring."""
    while isinstance(maker, partial):
        maker = maker.func
    return maker if isinstance(maker, type) or hasattr(maker, "__globals__") else type(maker).__call__


def _signature(maker: Entry) -> dict[str, Parameter]:
    try:
        found = {name: _resolved(p, maker) for name, p in inspect.signature(maker).parameters.items()}
    except ValueError:  # some callables written in C have no signature
        return {}
    rest = [name for name, parameter in found.items() if parameter.kind is parameter.VAR_KEYWORD]
    if rest and isinstance(maker, type) and maker is not object:  # a class passes them on to its base class
        del found[rest[0]]
        return {**_signature(maker.__mro__[1]), **found}
    return found


def _resolved(parameter: Parameter, maker: Entry) -> Parameter:
    """Return an argument with its annotation resolved; one that only a type checker can resolve becomes Any."""
    if not isinstance(parameter.annotation, str):
        return parameter
    code = origin(maker)
    names = getattr(code.__init__ if isinstance(code, type) else code, "__globals__", {})  # type: ignore[misc]

    def alone() -> None: ...  # a function resolves all its annotations or none

    alone.__annotations__ = {"it": parameter.annotation}
    try:
        return parameter.replace(annotation=get_type_hints(alone, names)["it"])
    except Exception:  # an annotation can be any expression
        return parameter.replace(annotation=Any)
