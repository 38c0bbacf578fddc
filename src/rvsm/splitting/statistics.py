"""Measure the layers of a method."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rvsm.metrics import LayerStatistics, Statistics, zeros
from rvsm.splitting.layers import Layer


def measure(
    layers: Sequence[Layer],
    sparse: Callable[[Layer], Tensor],
    prox_step: Callable[[Layer], float],
    parameters: Sequence[Tensor] | None,
) -> Statistics:
    """Return the statistics of layers, given the sparse copy and the step of each, and all parameters of the model."""
    rows: list[LayerStatistics] = []
    penalty = coupling = 0.0
    for layer in layers:
        u = sparse(layer)
        groups = None if layer.elementwise else layer.magnitudes(u)
        row = LayerStatistics(
            name=layer.name,
            shape=tuple(layer.w.shape),
            zeros=zeros(u),
            gap=float(torch.linalg.vector_norm(layer.w - u)),
            threshold=0.0 if layer.penalty is None else layer.penalty.threshold(prox_step(layer)),
            lam=None if layer.penalty is None else layer.penalty.lam,
            beta=layer.beta,
            groups=None if groups is None else groups.numel(),
            zero_groups=0 if groups is None else zeros(groups),
        )
        rows.append(row)
        penalty += layer.penalty_value(u)
        coupling += (layer.beta or 0.0) / 2 * row.gap**2
    sparsified = {id(layer.parameter) for layer in layers}
    others = [p for p in parameters or () if id(p) not in sparsified]
    return Statistics(
        layers=tuple(rows),
        parameters=sum(p.numel() for p in others) + sum(row.weights for row in rows),
        parameter_zeros=sum(map(zeros, others)) + sum(row.zeros for row in rows),
        penalty=penalty,
        coupling=coupling,
    )
