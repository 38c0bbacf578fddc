"""Products of computed matrices, and attention."""

import math
from typing import Any

import torch

from rvsm.lowering.place import Place
from rvsm.lowering.products import product
from rvsm.lowering.translations.layers import linear
from rvsm.lowering.translations.norms import softmax
from rvsm.lowering.translations.pointwise import activated, combined, two
from rvsm.lowering.values import Value, as_value, is_tensor, is_value
from rvsm.lowering.views import Axis, View
from rvsm.runtime.plan.operation import Activation

LETTERS = "abcdefghijklmnop"


def einsum(at: Place, equation: str, given: Any, **options: Any) -> Value | None:
    """Return a product of two tensors by letters; with a known matrix it is a linear layer."""
    if len(given) != 2 or "." in equation or "->" not in equation:
        return None
    a, b = (as_value(at.name, x) for x in given)
    if a is None or b is None:
        return None
    first, second = equation.replace(" ", "").split("->")[0].split(",")
    result = equation.replace(" ", "").split("->")[1]
    matrix = second if is_tensor(given[1]) else first if is_tensor(given[0]) else ""
    if len(matrix) == 2 and len(set(matrix)) == 2:
        x, own, known = (a, first, given[1]) if matrix is second else (b, second, given[0])
        summed = [c for c in matrix if c in own and c not in result]
        new = [c for c in matrix if c in result and c not in own]
        if len(summed) == len(new) == 1 and sorted(own.replace(summed[0], new[0])) == sorted(result):
            weight = known if matrix == new[0] + summed[0] else known.T
            return _along(at, x, own, summed[0], new[0], weight, result)
    return product(at.name, a, b, equation)


def _along(  # noqa: PLR0917
    at: Place, x: Value, own: str, summed: str, new: str, weight: Any, result: str
) -> Value | None:
    """Return a linear layer on one dimension, with the dimensions of the result in their order."""
    last = own.replace(summed, "") + summed
    moved = Value(x.node, x.view.permuted([own.index(c) for c in last]), x.dtype)
    made = linear(at, moved, weight)
    if made is None:
        return None
    letters = last[:-1] + new
    return Value(made.node, made.view.permuted([letters.index(c) for c in result]))


def matmul(at: Place, a: Any, b: Any) -> Value | None:
    """Return a product of matrices, of the last two dimensions; with a known matrix it is a linear layer."""
    if is_value(a) and is_tensor(b) and b.ndim == 2:
        return linear(at, a, b.T)
    if is_tensor(a) and a.ndim == 2 and is_value(b) and b.rank > 1:
        own = LETTERS[: b.rank]
        return _along(at, b, own, own[-2], "z", a, own[:-2] + "z" + own[-1])
    left, right = as_value(at.name, a), as_value(at.name, b)
    if left is None or right is None or left.rank < 2 or right.rank < 2:
        return None
    rank = max(left.rank, right.rank)
    outer = LETTERS[: rank - 2]
    first, second = outer[rank - left.rank :] + "mk", outer[rank - right.rank :] + "kn"
    return product(at.name, left, right, f"{first},{second}->{outer}mn")


def added_product(at: Place, x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Value | None:
    """Return beta · x + alpha · a b."""
    return two(at, matmul(at, a, b), x, operation="add") if beta == alpha == 1 else None


def attention(  # noqa: PLR0917 - aten's own order
    at: Place, query: Any, key: Any, value: Any, mask: Any = None, dropout: float = 0.0, causal: bool = False,
    *, scale: Any = None, enable_gqa: bool = False,
) -> Value | None:  # fmt: skip
    """Return softmax(query · keyᵀ · scale + mask) · value."""
    if not is_value(query, key, value) or dropout != 0 or query.rank < 3:
        return None
    if enable_gqa:
        key, value = (_shared(x, query.sizes[-3][1]) for x in (key, value))
    scale = 1 / math.sqrt(query.sizes[-1][1]) if scale is None else float(scale)
    outer = LETTERS[: query.rank - 2]
    letters = (f"{outer}md", f"{outer}nd", f"{outer}mn")
    scores = product(at.name, query, key, f"{letters[0]},{letters[1]}->{letters[2]}", scale)
    sizes = Place(at.name, scores.sizes, torch.float32)
    if causal:
        rows, columns = query.sizes[-2][1], key.sizes[-2][1]
        mask = torch.ones(rows, columns, dtype=torch.bool).tril()
    added = _added(sizes, mask)
    if added is False:
        return None
    masked = added is not None
    shifted = scores if added is None else combined(sizes, "add", scores, added)
    weights = softmax(sizes, shifted, -1, masked=masked)
    if weights is None:
        return None
    return product(at.name, weights, value, f"{outer}mn,{outer}nd->{outer}md")


def _shared(x: Value, heads: int) -> Value:
    """Return keys or values of fewer heads, each for several heads of the query."""
    dims = list(x.view.dims)
    own = x.sizes[-3][1]
    dims[-3] = (*dims[-3], Axis(heads // own, 0)) if heads > own else dims[-3]
    return Value(x.node, View(tuple(dims), x.view.offset), x.dtype)


def _added(at: Place, mask: Any) -> Any:
    """Return what a mask adds to the scores: 0 or −∞ for truth values; None for nothing, False if it is unknown."""
    if mask is None or (is_tensor(mask) and mask.dtype == torch.bool and bool(mask.all())):
        return None
    if is_tensor(mask):
        return torch.zeros(mask.shape).masked_fill_(~mask, -math.inf) if mask.dtype == torch.bool else mask
    if not is_value(mask):
        return False
    if mask.dtype != torch.bool:
        return mask
    once = _unrepeated(mask)
    return activated(Place(at.name, once.sizes, torch.float32), once, Activation("choose", 0.0, -math.inf))


def _unrepeated(x: Value) -> Value:
    """Return a value without its repetitions, which broadcasting makes again."""
    dims = tuple(tuple(axis for axis in dim if axis.stride or axis.size == 0) for dim in x.view.dims)
    return Value(x.node, View(dims, x.view.offset), x.dtype)
