"""Build the objects that a configuration describes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from rvsm.config.config import Config
from rvsm.config.sections import entry, takes
from rvsm.data import Augmentation, Cutout, Dataset, Flip, RandomCrop
from rvsm.groups import Grouping
from rvsm.models import MODELS
from rvsm.models.user import blame
from rvsm.optimizers import OptimizerOptions
from rvsm.penalties import Penalty
from rvsm.schedules import Schedule
from rvsm.splitting import Budget, Method
from rvsm.splitting import profile as measure_profile
from rvsm.timing import Profile


def dataset(config: Config) -> Dataset:
    """Load the data."""
    return cast(Dataset, entry("data", config.data.name)(**config.data.options).load())


def network(config: Config, *, channels: int, classes: int, size: int) -> nn.Module:
    """Return a new network; it gets the channels, classes and size of the images if it has such arguments."""
    maker = entry("model", config.model.name)
    about = {"channels": channels, "classes": classes, "size": size}
    try:
        model = maker(**{k: v for k, v in about.items() if takes(maker, k)}, **config.model.options)
    except Exception as error:  # a user's code may raise anything
        reason = str(error) if config.model.name in MODELS else blame(error)
        raise ValueError(f"the model {config.model.name!r} cannot be created: {reason}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"model.name {config.model.name!r} must return a torch.nn.Module but returned {model!r}")
    return model


def optimizer(config: Config) -> OptimizerOptions:
    """Return the options of the optimizer, which can build it."""
    return cast(OptimizerOptions, entry("optimizer", config.optimizer.name)(**config.optimizer.options))


def schedule(config: Config) -> Schedule:
    """Return the schedule of the learning rate."""
    return cast(Schedule, entry("schedule", config.schedule.name)(**config.schedule.options))


def augmentations(config: Config) -> list[Augmentation]:
    """Return the random changes of the training images."""
    crop, flip, cutout = config.augment.crop, config.augment.flip, config.augment.cutout
    changes = [RandomCrop(padding=crop) if crop else None, Flip() if flip else None, Cutout(cutout) if cutout else None]
    return [change for change in changes if change is not None]


def penalty(config: Config) -> Penalty | None:
    """Return the penalty, if there is one; its λ is 1 if a budget will set it."""
    if config.penalty is None:
        return None
    free = {} if config.budget is None else {"lam": 1.0}
    return cast(Penalty, entry("penalty", config.penalty.name)(**config.penalty.options, **free))


def grouping(config: Config) -> Grouping | None:
    """Return how weights are grouped, if the method groups them."""
    return None if config.groups is None else entry("groups", config.groups.name)(**config.groups.options)


def budget(config: Config, steps: int, times: Profile | None = None) -> Budget | None:
    """Return the budget for a training of this many steps, if there is one, with the times of the layers if known."""
    return None if config.budget is None else Budget(steps=steps, **{**config.budget, "profile": times})


def selection(config: Config) -> dict[str, Any]:
    """Return which weights may become zero, and how they are grouped, as arguments of rvsm.profile."""
    chosen: dict[str, Any] = {key: config.method.options.get(key) for key in ("include", "exclude")}
    return {"groups": grouping(config) or "element", **chosen}


def profile(config: Config, model: nn.Module, example: Tensor) -> Profile | None:
    """Return the times of the layers, from their file or measured, if the target is a time."""
    target = budget(config, steps=1)
    if config.budget is None or target is None or target.by != "time":
        return None
    with _of("budget"):
        if (file := config.budget["profile"]) is not None:
            return Profile.load(file)
        return measure_profile(model, example[:1], **selection(config))


def method(
    config: Config, model: nn.Module, steps: int, example: Tensor, times: Profile | None = None
) -> Method | None:
    """Return the method that makes the model sparse in this many steps; None for dense training.

    A target that is a time needs the times of the layers.
    """
    if config.method.name == "dense":
        return None
    maker = entry("method", config.method.name)
    whole = {
        "penalty": penalty(config),
        "groups": grouping(config),
        "budget": budget(config, steps, times),
        "example_input": example,
        "epoch_steps": steps // config.training.epochs,
        "steps": None if takes(maker, "budget") else steps,  # a budget already has them
    }
    known = {k: v for k, v in whole.items() if takes(maker, k) and v is not None}
    with _of("method"):
        return cast(Method, maker(model, **known, **config.method.options))


def check(config: Config) -> None:
    """Raise all errors that can be found without data."""
    with _of("optimizer"):  # with a dummy parameter, so that torch rejects invalid options now
        optimizer(config).build([nn.Parameter(torch.zeros(1))])
    for section, make in (("schedule", schedule), ("penalty", penalty), ("groups", grouping)):
        with _of(section):
            make(config)
    with _of("budget"):
        budget(config, steps=1000)


@contextmanager
def _of(section: str) -> Iterator[None]:
    """Name the section of refused options in the error."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"[{section}] {error}") from None
