"""One network with many weights: captured once, and turned into a plan for each."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, fx, nn

from rvsm.lowering.capture import capture
from rvsm.lowering.draft import Draft, Node
from rvsm.lowering.translate import TRANSLATIONS
from rvsm.lowering.whole import shrink, whole_draft
from rvsm.runtime.plan.plan import Plan


class Variants:
    """A network all of which the runtime has, as plans for any weights; capturing it takes seconds.

    The operations of a plan have the names of their weights. A network of which a part would run in PyTorch is a
    ValueError that names the operations.

    Args:
        model: a module in eval mode, on the CPU.
        examples: a batch of its inputs.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
    >>> variants = Variants(model, (torch.zeros(1, 3),))
    >>> plan = variants.plan({"0.weight": torch.eye(4, 3)})
    >>> [(operation.name, len(plan.weights[k].values)) for k, operation in enumerate(plan.operations)]
    [('0.weight', 3)]

    """

    def __init__(self, model: nn.Module, examples: tuple[Tensor, ...]) -> None:
        self._captured = capture(model, examples, TRANSLATIONS)
        names = {w.data_ptr(): name for name, w in model.named_parameters() if w.numel()}
        self._places: dict[fx.Node, str] = {
            node: names[value.data_ptr()]
            for node, value in self._captured.tensors.items()
            if isinstance(value, Tensor) and value.data_ptr() in names
        }
        self._own = {node: self._captured.tensors[node] for node in self._places}
        # A weight is recognised by its values: the n-th parameter is filled with n, and comes out where it is used.
        marks = {name: float(n) for n, name in enumerate(dict.fromkeys(self._places.values()), start=1)}
        filled = {name: torch.full_like(self._own[node], marks[name]) for node, name in self._places.items()}
        marked = self._draft(filled)
        self._names = [_marked(node, {mark: name for name, mark in marks.items()}) for node in _weighted(marked)]

    @property
    def weights(self) -> set[str]:
        """The names of the parameters that are the weights of an operation."""
        return {name for name in self._names if name is not None}

    def plan(self, weights: Mapping[str, Tensor]) -> Plan:
        """Return the plan of the network with other values of some of its parameters."""
        draft = self._draft(weights)
        for node, name in zip(_weighted(draft), self._names, strict=True):
            if name is not None and node.operation is not None:
                node.operation = replace(node.operation, name=name)
        shrink(draft)
        return draft.plan()

    def _draft(self, weights: Mapping[str, Tensor]) -> Draft:
        given = {node: weights.get(name, self._own[node]) for node, name in self._places.items()}
        return whole_draft(replace(self._captured, tensors={**self._captured.tensors, **given}))


def _weighted(draft: Draft) -> list[Node]:
    return [node for node in draft.nodes if node.weights is not None]


def _marked(node: Node, names: Mapping[float, str]) -> str | None:
    """Return the name of the parameter with whose mark the weights of a node are filled."""
    values = np.unique(node.all_weights[node.all_weights != 0])  # an even kernel may have been padded with zeros
    return names.get(float(values[0])) if len(values) == 1 else None
