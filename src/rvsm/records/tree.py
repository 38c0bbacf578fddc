"""Split nested states into named tensors and plain JSON, and join them again, without pickle."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Tree = Any
"""Dicts, lists, tuples, tensors, strings, numbers, booleans and None, nested."""


def split(tree: Tree) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors of a tree by name, and the rest as JSON, with marks in place of the tensors.

    >>> tensors, rest = split({"lr": 0.1, "state": {0: torch.zeros(2)}})
    >>> list(tensors), rest
    (['0'], {'lr': 0.1, 'state': {'#pairs': [[0, {'#tensor': '0'}]]}})
    >>> join(tensors, rest)
    {'lr': 0.1, 'state': {0: tensor([0., 0.])}}
    """
    tensors: dict[str, Tensor] = {}

    def plain(node: Tree) -> Any:
        if torch.is_tensor(node):
            key = str(len(tensors))
            # A copy, since the file format cannot represent two tensors that share memory.
            tensors[key] = node.detach().cpu().clone(memory_format=torch.contiguous_format)
            return {"#tensor": key}
        if isinstance(node, Mapping):
            if all(isinstance(k, str) and not k.startswith("#") for k in node):
                return {k: plain(v) for k, v in node.items()}
            return {"#pairs": [[plain(k), plain(v)] for k, v in node.items()]}
        if isinstance(node, tuple):
            return {"#tuple": [plain(part) for part in node]}
        if isinstance(node, list):
            return [plain(part) for part in node]
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise TypeError(f"a state may hold tensors, numbers, strings, lists and dicts but has {node!r}")

    return tensors, plain(tree)


def join(tensors: Mapping[str, Tensor], rest: Any) -> Tree:
    """Return the tree that was split."""
    if isinstance(rest, list):
        return [join(tensors, part) for part in rest]
    if not isinstance(rest, dict):
        return rest
    if "#tensor" in rest:
        return tensors[rest["#tensor"]]
    if "#tuple" in rest:
        return tuple(join(tensors, part) for part in rest["#tuple"])
    if "#pairs" in rest:
        return {join(tensors, key): join(tensors, value) for key, value in rest["#pairs"]}
    return {key: join(tensors, value) for key, value in rest.items()}
