"""Pooling, concatenation, and what changes the shape only."""

from collections.abc import Callable, Sequence
from typing import Any

from rvsm.lowering.draft import Node
from rvsm.lowering.translations.nodes import is_node, node, pair, same
from rvsm.runtime.operations import AdaptivePooling, Concatenation, Flattening, Pooling


def cat(name: str, parts: Sequence[Any], dim: int = 0) -> Node | None:
    """Return values side by side in their channels."""
    if not is_node(*parts) or dim not in (1, -1 if parts[0].flat else -3):
        return None
    return node(Concatenation(name=name, parts=()), list(parts))


def max_pool(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Node | None:
    """Return the maxima of windows."""
    if not is_node(x) or x.flat:
        return None
    operation = Pooling(
        name=name, source=0, mode="max", kernel=pair(kernel), stride=pair(stride or kernel), padding=pair(padding),
        dilation=pair(dilation), ceil=ceil,
    )  # fmt: skip
    return node(operation, [x])


def avg_pool(  # noqa: PLR0917 - aten's own order
    name: str, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, padded: bool = True,
    divisor: int | None = None,
) -> Node | None:  # fmt: skip
    """Return the means of windows."""
    if not is_node(x) or x.flat or divisor is not None:
        return None
    operation = Pooling(
        name=name, source=0, mode="mean", kernel=pair(kernel), stride=pair(stride or kernel), padding=pair(padding),
        ceil=ceil, padded=padded,
    )  # fmt: skip
    return node(operation, [x])


def adaptive(mode: str) -> Callable[..., Node | None]:
    """Return the translation of a pooling to a given size."""

    def translation(name: str, x: Any, size: Any) -> Node | None:
        if not is_node(x) or x.flat:
            return None
        return node(AdaptivePooling(name=name, source=0, mode=mode, size=pair(size)), [x])

    return translation


def mean(name: str, x: Any, dims: Sequence[int] | None = None, keepdim: bool = False) -> Node | None:
    """Return the mean over height and width."""
    if not is_node(x) or x.flat or dims is None or sorted(d % 4 for d in dims) != [2, 3]:
        return None
    return node(AdaptivePooling(name=name, source=0, mode="mean", size=(1, 1)), [x])


def reshape(name: str, x: Any, *others: Any, **options: Any) -> Node | None:
    """Return a flattening; ``translate`` refuses it if that is not the shape that comes out."""
    if not is_node(x):
        return None
    return same(x) if x.shape[1:] == (1, 1) else node(Flattening(name=name, source=0), [x])


def first(name: str, value: Any, index: int) -> Node | None:
    """Return the first of several results."""
    return same(value) if is_node(value) and index == 0 else None


def identity(name: str, x: Any, *others: Any, **options: Any) -> Node | None:
    """Return the value as it is."""
    return same(x) if is_node(x) else None
