"""Measure the layers of a method."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rvsm.metrics import LayerStatistics, Statistics, zeros
from rvsm.splitting.layers import Layer
from rvsm.splitting.units import units


def measure(
    layers: Sequence[Layer],
    sparse: Callable[[Layer], Tensor],
    prox_step: Callable[[Layer], float],
    parameters: Sequence[Tensor] | None,
) -> Statistics:
    """Return the statistics of layers, given the sparse copy and the step of each, and all parameters of the model."""
    rows: list[LayerStatistics] = []
    penalty = 0.0
    for unit in units(layers):
        us = [sparse(layer) for layer in unit.layers]
        rows += [_row(layer, u, prox_step(layer)) for layer, u in zip(unit.layers, us, strict=True)]
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


def _row(layer: Layer, u: Tensor, step: float) -> LayerStatistics:
    groups = None if layer.elementwise else layer.magnitudes(u)
    return LayerStatistics(
        name=layer.name,
        shape=tuple(layer.w.shape),
        zeros=zeros(u),
        gap=float(torch.linalg.vector_norm(layer.w - u)),
        threshold=0.0 if layer.penalty is None else layer.penalty.threshold(step),
        lam=None if layer.penalty is None else layer.penalty.lam,
        beta=layer.beta,
        groups=None if groups is None else groups.numel(),
        zero_groups=0 if groups is None else zeros(groups),
    )
