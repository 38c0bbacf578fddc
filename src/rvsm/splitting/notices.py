"""Warnings that point to a line of the user's code."""

import sys
import warnings

_INNER = ("rvsm.splitting", "contextlib", "torch.optim", "torch.utils", "torch.autograd")


def warn(message: str) -> None:
    """Warn at the line of the user's code that led here, however deep the call stack is.

    The stack includes constructors of several classes, context managers, and the hooks and wrappers of torch.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_INNER):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level + 1)
