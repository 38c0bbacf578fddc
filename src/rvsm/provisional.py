"""Weights that are not final yet: those of a training, of which only a copy is sparse.

A method marks the weights that it trains, and `rvsm.compile` warns about them. Neither imports the other.
"""

import warnings
from collections.abc import Callable, Iterable

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

Check = Callable[[], bool]

_checks: "WeakIdKeyDictionary" = WeakIdKeyDictionary()


def mark(w: Tensor, is_provisional: Check) -> None:
    """Mark a tensor of weights; the check says whether the mark counts at the moment."""
    _checks[w] = is_provisional


def warn_if_provisional(weights: Iterable[Tensor], stacklevel: int) -> None:
    """Warn if any of these weights is not final."""
    if any(w in _checks and _checks[w]() for w in weights):
        warnings.warn(
            "the model has the weights of its training, of which only a copy is sparse; call finalize() on the"
            " sparsifier first, or do this inside its sparse_weights()",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
