"""A user's own network, by the import path of a callable that makes it."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from torch import nn


def find_callable(name: str) -> Callable[..., Any]:
    """Return the callable that ``"module:callable"`` names; modules in the working directory can be named too.

    >>> find_callable("torch.nn:Linear")
    <class 'torch.nn.modules.linear.Linear'>
    """
    module_name, colon, path = name.partition(":")
    if not (colon and all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")])):
        raise ValueError(f"a model of your own is named as module:callable, for example nets:small, but is {name!r}")
    found: Any = _module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            near = getattr(found, "__dict__", {})
            names = [key for key, value in near.items() if callable(value) and not key.startswith("_")]
            raise ValueError(f"{name!r}: there is no {part!r}; callables there are {', '.join(names) or 'none'}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{name!r} must be a class or a function that makes a model but is a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def load_model(name: str, **arguments: Any) -> nn.Module:
    """Return the network that ``"module:callable"`` makes of these arguments.

    >>> load_model("torch.nn:Linear", in_features=4, out_features=2)
    Linear(in_features=4, out_features=2, bias=True)
    """
    maker = find_callable(name)
    _check_arguments(name, maker, arguments)
    model = maker(**arguments)
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name!r} must return a torch.nn.Module but returned a {type(model).__name__}")
    return model


def _module(name: str) -> Any:
    # As for `python -m`, what lies in the working directory comes first, now and for imports that come later.
    here = os.getcwd()
    if sys.path[0] not in ("", here):
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"the module {name!r} needs {error.name!r}, which is not installed") from error
        raise ValueError(
            f"there is no module {error.name!r}, neither installed nor in {here}; a model of your own is named as"
            " module:callable"
        ) from error


def _check_arguments(name: str, maker: Callable[..., Any], arguments: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(maker)
    except ValueError:  # some callables written in C do not tell
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{name!r} does not take these arguments: {error}; it takes {signature}") from error
