"""A complete configuration of one training: names from registries, and their options."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from rvsm.config.training import Augment, Training
from rvsm.config.values import plain

OF_THE_MACHINE = {
    "data": ("path",),
    "training": ("threads", "device", "tensorboard", "checkpoint_every"),
    "budget": ("profile",),
}
"""The options that say where and how a training runs, not what is trained, by section."""


@dataclass(frozen=True)
class Choice:
    """An entry of a registry by its name, with all its options."""

    name: str
    options: Mapping[str, Any]

    def table(self) -> dict[str, Any]:
        """Return it as a section of a file."""
        return {"name": self.name, **self.options}


@dataclass(frozen=True)
class Config:
    """The definition of a training: data, model, optimizer, schedule, epochs, and how the weights are made sparse.

    `read_config` makes it from a file and the command line.
    """

    name: str  # of the run, and of its row in a table
    seed: int  # decides the initial weights, the order of the images, their augmentation and the validation images
    data: Choice
    model: Choice
    optimizer: Choice
    schedule: Choice  # how the learning rate changes
    training: Training  # epochs, batches, precision
    augment: Augment  # random changes of the training images
    method: Choice  # the method that makes the weights sparse, or "dense"
    penalty: Choice | None = None  # the penalty, if the method has one; without λ if a budget sets it
    groups: Choice | None = None  # how weights are grouped, if the method groups them
    budget: Mapping[str, Any] | None = None  # the options of the target sparsity, without the steps, if there is one
    weights: str | None = None  # the file or the folder of the run with the initial weights, if they are not random

    def __post_init__(self) -> None:
        if not -(2**63) <= self.seed < 2**64:
            raise ValueError(f"seed must be an integer of at most 64 bits but is {self.seed}")

    def table(self) -> dict[str, Any]:
        """Return all options as sections of a file; null values are left out, since TOML has no null.

        An option that a file cannot hold is an error that names it.
        """
        table: dict[str, Any] = {"name": _kept("name", self.name), "seed": self.seed}
        for field in fields(self):
            found = getattr(self, field.name)
            if isinstance(found, Choice):
                found = found.table()
            elif isinstance(found, Training | Augment):
                found = asdict(found)
            if isinstance(found, Mapping):
                table[field.name] = {k: _kept(f"{field.name}.{k}", v) for k, v in found.items() if v is not None}
        if self.weights is not None:
            table["model"]["weights"] = _kept("model.weights", self.weights)
        return table

    def fingerprint(self) -> str:
        """Return eight characters that depend on all options but name, seed and what belongs to a machine."""
        return fingerprint(self.table(), OF_THE_MACHINE)

    def with_seed(self, seed: int) -> "Config":
        """Return the same training with another seed."""
        return replace(self, seed=seed)


def fingerprint(table: Mapping[str, Any], left_out: Mapping[str, Collection[str]]) -> str:
    """Return eight characters that depend on all options of a table but name, seed and those left out, by section."""
    counted = {
        section: {k: v for k, v in found.items() if k not in left_out.get(section, ())}
        if isinstance(found, Mapping)
        else found
        for section, found in table.items()
        if section not in ("name", "seed")
    }
    return hashlib.sha256(json.dumps(counted, sort_keys=True, default=str).encode()).hexdigest()[:8]


def differences(ours: Config, theirs: Config, *, machine: bool = True) -> list[str]:
    """Return the options in which two configurations differ, as "training.epochs 10 → 12".

    Options that belong to a machine count only if ``machine`` is true.
    """
    one, other = flat(ours.table()), flat(theirs.table())
    left_out = set() if machine else {f"{section}.{key}" for section, keys in OF_THE_MACHINE.items() for key in keys}
    return [
        f"{key} {one.get(key, 'unset')} → {other.get(key, 'unset')}"
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key) and repr(one.get(key)) != repr(other.get(key))  # NaN differs from itself
        if key not in left_out
    ]


def _kept(key: str, value: Any) -> Any:
    try:
        return plain(value)
    except ValueError as error:
        raise ValueError(
            f"{key} holds {error}, which cannot be stored in the file with the options of a run; give strings,"
            " numbers, or lists and tables of them"
        ) from None


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a table of sections, by "section.key".

    >>> flat({"seed": 0, "penalty": {"name": "l0", "lam": 0.1}})
    {'seed': 0, 'penalty.name': 'l0', 'penalty.lam': 0.1}
    """
    options: dict[str, Any] = {}
    for key, value in table.items():
        options |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return options
