"""Say when most of a model is left dense because its modules are not known."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import weight_names


def warn_of_untouched(model: nn.Module, layers: Sequence[Layer], exclude: Iterable[str]) -> None:
    """Warn if the selected layers are less than half of a model's matrices, and name the types of the others.

    A matrix is a parameter of two dimensions or more. What the user has excluded does not count, nor do the parts of
    computed weights, which have their own warning.
    """
    unwanted = list(exclude)
    selected = {id(layer.parameter) for layer in layers}
    seen: set[int] = set()
    touched, others = 0, Counter[str]()
    for prefix, module in model.named_modules():
        for name, w in module.named_parameters(prefix, recurse=False):
            if w.dim() < 2 or id(w) in seen or any(fnmatchcase(name, pattern) for pattern in unwanted):
                continue
            seen.add(id(w))
            if id(w) in selected:
                touched += w.numel()
            elif not _computes(module):
                others[type(module).__name__] += w.numel()
    if others.total() > touched:
        listed = ", ".join(f"{kind} ({count:,})" for kind, count in others.most_common(5))
        warnings.warn(
            f"only {touched / (touched + others.total()):.0%} of the model's {touched + others.total():,} weights in"
            f" matrices are sparsified; the others stay dense, as they belong to modules of the types {listed}. Name"
            " them with include=[...], or leave them out with exclude=[...] if that is meant",
            stacklevel=5,
        )


def _computes(module: nn.Module) -> bool:
    """Return whether a module's parameters are parts of which a weight is computed."""
    return isinstance(module, ParametrizationList) or any(w not in module._parameters for w in weight_names(module))
