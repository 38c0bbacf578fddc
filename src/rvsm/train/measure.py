"""Measurements of a network at one moment, as plain numbers for a record."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from rvsm.data import Batches
from rvsm.metrics import Statistics
from rvsm.modes import modes_kept, random_state_kept
from rvsm.splitting import Method
from rvsm.train.hardware import Placement
from rvsm.train.ranks import ALONE, Ranks

EDGES = tuple(round(-7 + 0.1 * i, 1) for i in range(81))
"""The edges of the histograms, as decimal logarithms of |w|: 1e-7 to 10."""


@torch.no_grad()
def evaluate(model: nn.Module, batches: Batches, placement: Placement, ranks: Ranks = ALONE) -> dict[str, float]:
    """Return the accuracy and the mean cross-entropy in eval mode; the states of random generators are restored.

    Each process computes some of the batches. A batch is never divided, so the result does not depend on their number.
    """
    sums = torch.zeros(len(batches), 3, dtype=torch.float64)  # correct answers, loss and images of each batch
    own = range(ranks.rank, len(batches), ranks.size)
    with random_state_kept(), modes_kept(model):
        model.eval()
        for number, (x, y) in zip(own, batches.epoch(0, start=min(own.start, own.stop), stride=own.step), strict=True):
            with placement.autocast():
                scores = model(x)
            scores = scores.float()
            loss = nn.functional.cross_entropy(scores, y, reduction="sum")
            sums[number] = torch.tensor([(scores.argmax(1) == y).sum(), loss, len(y)])
    correct, loss, total = (sum(column) for column in ranks.total(sums).t().tolist())
    return {"accuracy": correct / total, "loss": loss / total}


def sparsity_record(method: Method, loss: float) -> dict[str, Any]:
    """Return the statistics of a method as plain numbers, given the training loss f(w)."""
    statistics: Statistics = method.statistics()
    return {
        "phase": None if method.budget is None else method.budget.phase(max(method.step - 1, 0)),  # of the last step
        "sparsity": statistics.sparsity,
        **({} if statistics.speedup is None else {"speedup": statistics.speedup}),
        "sparsity_of_all": statistics.sparsity_of_all,
        "gap": statistics.gap,
        "lagrangian": statistics.lagrangian(loss),
        "lam": _range(layer.lam for layer in statistics.layers if layer.lam is not None),
        "threshold": _range(layer.threshold for layer in statistics.layers),
        "layers": {
            layer.name: {"weights": layer.weights, "density": 1 - layer.sparsity, "threshold": layer.threshold}
            for layer in statistics.layers
        },
    }


def histogram(tensors: Iterable[Tensor]) -> dict[str, Any]:
    """Return the number of weights of each magnitude, on a logarithmic scale, and the number of zeros."""
    counts = torch.zeros(len(EDGES) - 1, dtype=torch.int64)
    zeros = 0
    for w in tensors:
        sizes = w.detach().float().abs().flatten()
        zeros += int((sizes == 0).sum())
        logs = sizes[sizes > 0].log10().clamp(EDGES[0], EDGES[-1])
        counts += torch.histc(logs, len(EDGES) - 1, EDGES[0], EDGES[-1]).to(torch.int64).cpu()
    return {"range": [EDGES[0], EDGES[-1]], "zeros": zeros, "counts": counts.tolist()}


def channel_norms(model: nn.Module, named: Iterable[tuple[str, Tensor]]) -> dict[str, list[float]]:
    """Return the norm of each output channel of each listed weight, to four digits; vectors have no channels."""
    transposed = {id(m.weight) for m in model.modules() if isinstance(m, _ConvTransposeNd)}  # outputs come second
    norms = {}
    for name, w in ((name, w) for name, w in named if w.dim() > 1):
        by_output = w.detach().float().transpose(0, 1) if id(w) in transposed else w.detach().float()
        norms[name] = [float(f"{norm:.4g}") for norm in by_output.flatten(1).norm(dim=1).tolist()]
    return norms


def _range(values: Iterable[float]) -> list[float] | None:
    listed = list(values)
    return [min(listed), max(listed)] if listed else None
