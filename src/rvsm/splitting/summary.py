"""Statistics of a method's layers, and its one-line representation for notebooks."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from rvsm.metrics import LayerStatistics, Statistics, zeros
from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer
from rvsm.splitting.units import units


def measure(
    layers: Sequence[Layer],
    sparse: Callable[[Layer], Tensor],
    threshold: Callable[[Layer], float],
    parameters: Sequence[Tensor] | None,
) -> Statistics:
    """Return the statistics of layers, given their sparse copies and thresholds, and all parameters of the model."""
    rows: list[LayerStatistics] = []
    penalty = 0.0
    for unit in units(layers):
        us = [sparse(layer) for layer in unit.layers]
        rows += [_row(layer, u, threshold(layer)) for layer, u in zip(unit.layers, us, strict=True)]
        penalty += unit.penalty_value(us)
    coupling = sum((row.beta or 0.0) / 2 * row.gap**2 for row in rows)
    sparsified = {id(layer.parameter) for layer in layers}
    others = [p for p in parameters or () if id(p) not in sparsified]
    return Statistics(
        layers=tuple(rows),
        parameters=sum(p.numel() for p in others) + sum(row.weights for row in rows),
        parameter_zeros=sum(map(zeros, others)) + sum(row.zeros for row in rows),
        penalty=penalty,
        coupling=coupling,
    )


def _row(layer: Layer, u: Tensor, threshold: float) -> LayerStatistics:
    groups = None if layer.elementwise else layer.magnitudes(u)
    return LayerStatistics(
        name=layer.name,
        shape=tuple(layer.w.shape),
        zeros=zeros(u),
        gap=float(torch.linalg.vector_norm(layer.w - u)),
        threshold=threshold,
        lam=None if layer.penalty is None else layer.penalty.lam,
        beta=layer.beta,
        groups=None if groups is None else groups.numel(),
        zero_groups=0 if groups is None else zeros(groups),
    )


def describe(
    kind: str, layers: Sequence[Layer], budget: Budget | None, state: str, statistics: Statistics | None
) -> str:
    """Return one line with the method, its penalty, target, state, layers and zeros, as far as available."""
    weights = sum(layer.w.numel() for layer in layers)
    parts = [
        *_penalties(layers, named=budget is not None),
        *_targets(layers, budget),
        state,
        f"{len(layers)} layer{'s' * (len(layers) != 1)} with {weights:,} weights",
        *([] if statistics is None else [f"{statistics.sparsity:.2%} zeros"]),
    ]
    return f"{kind}({', '.join(parts)})"


def _penalties(layers: Sequence[Layer], *, named: bool) -> Iterator[str]:
    """Yield each penalty once; only its name if a budget sets its λ."""
    penalties = (layer.template for layer in layers if layer.template is not None)
    yield from dict.fromkeys(type(penalty).__name__ if named else repr(penalty) for penalty in penalties)


def _targets(layers: Sequence[Layer], budget: Budget | None) -> Iterator[str]:
    if budget is not None:
        yield f"sparsity={budget.sparsity:g}"
        yield f"steps={budget.steps}"
    elif own := sorted({layer.sparsity for layer in layers if layer.sparsity is not None}):
        yield "sparsity=" + "/".join(f"{sparsity:g}" for sparsity in own)
