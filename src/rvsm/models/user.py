"""A user's own network, given by the import path of a callable that creates it."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from difflib import SequenceMatcher
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

_PACKAGES = (torch.__file__, Path(__file__).parent, importlib.__file__)
_NOT_THEIRS = (*(str(Path(file).parent) for file in _PACKAGES), "<frozen")
"""Where the files of torch, of this package and of Python's imports are."""


class NotAllowedError(ValueError):
    """A file names a model that the user has not allowed to be imported."""


def find_callable(name: str) -> Callable[..., Any]:
    """Return the callable that ``"module:callable"`` names; modules in the working directory are also found.

    >>> find_callable("torch.nn:Linear")
    <class 'torch.nn.modules.linear.Linear'>
    """
    module_name, path = _parts(name)
    found: Any = _module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            near = getattr(found, "__dict__", {})
            names = [key for key, value in near.items() if callable(value) and not key.startswith("_")]
            nearest = sorted(names, key=lambda key: -SequenceMatcher(None, part, key).ratio())
            there = ", ".join(nearest[:10]) + (" …" if len(nearest) > 10 else "") if nearest else "none"
            raise ValueError(f"{name!r}: there is no {part!r}; the callables there are: {there}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{name!r} must be a class or a function that creates a model but is a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def require_allowed(name: str, allowed: Collection[str]) -> None:
    """Raise `NotAllowedError` unless the user has allowed this model: importing a module runs it.

    >>> require_allowed("torch.nn:Linear", ["torch.nn:Linear"])
    """
    _parts(name)
    if name not in allowed:
        raise NotAllowedError(
            f"the model {name!r} would be imported and called, which can run any code; if you trust its source,"
            f" allow it with --allow-import {name}, or allow_import=[{name!r}] in Python"
        )


def load_model(name: str, **arguments: Any) -> nn.Module:
    """Return the network that ``"module:callable"`` creates from these arguments.

    >>> load_model("torch.nn:Linear", in_features=4, out_features=2)
    Linear(in_features=4, out_features=2, bias=True)
    """
    maker = find_callable(name)
    _check_arguments(name, maker, arguments)
    try:
        model = maker(**arguments)
    except Exception as error:  # a user's code may raise anything
        raise ValueError(f"the model {name!r} cannot be created: {blame(error)}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name!r} must return a torch.nn.Module but returned a {type(model).__name__}")
    return model


def fill(model: nn.Module, weights: Mapping[str, Any], where: object) -> None:
    """Load weights into a network; the error names their source if they do not fit."""
    try:
        model.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = _mismatch(model.state_dict(), weights) or " ".join(str(error).split())[:300]
        raise ValueError(f"the weights in {where} are not those of the network: {reason}") from None


def _mismatch(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return which weights are missing, unexpected, or of another shape, as a string; empty if all fit."""
    pairs = {name: (theirs[name], ours[name]) for name in ours if name in theirs}
    shapes = {name: [list(getattr(value, "shape", ())) for value in pair] for name, pair in pairs.items()}
    other = [f"{name} {found} instead of {expected}" for name, (found, expected) in shapes.items() if found != expected]
    problems = {
        "missing": [name for name in ours if name not in theirs],
        "unexpected": [name for name in theirs if name not in ours],
        "of another shape": other,
    }
    return "; ".join(f"{kind}: {_few(names)}" for kind, names in problems.items() if names)


def _few(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _parts(name: str) -> tuple[str, str]:
    """Return the module and the path of the callable in it."""
    module, colon, path = name.partition(":")
    if not (colon and all(part.isidentifier() for part in [*module.split("."), *path.split(".")])):
        raise ValueError(f"a model of your own is named as module:callable, for example nets:small, but is {name!r}")
    return module, path


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
    except Exception as error:  # a user's file may raise anything
        raise ValueError(f"the module {name!r} cannot be imported: {blame(error)}") from error


def blame(error: BaseException) -> str:
    """Return what was raised, and where in a user's own code, in one line.

    >>> blame(ValueError("three layers are too few"))
    'ValueError: three layers are too few'
    """
    reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    if isinstance(error, SyntaxError):
        return f"{reason} ({error.filename}, line {error.lineno})"
    own = [step for step in traceback.extract_tb(error.__traceback__) if not step.filename.startswith(_NOT_THEIRS)]
    return f"{reason} ({own[-1].filename}, line {own[-1].lineno})" if own else reason


def _check_arguments(name: str, maker: Callable[..., Any], arguments: dict[str, Any]) -> None:
    try:
        signature(maker).bind(**arguments)
    except ValueError:  # some callables written in C have no signature
        return
    except TypeError as error:
        raise ValueError(f"{name!r} does not take these arguments: {error}; it takes {signature(maker)}") from error
