"""Statistics of a method's layers, and its one-line representation for notebooks."""

from collections.abc import Callable, Iterator, Sequence
from math import sqrt

import torch
from torch import Tensor

from rvsm.metrics import LayerStatistics, Statistics, zeros
from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer, totals
from rvsm.splitting.units import units


def measure(
    layers: Sequence[Layer],
    sparse: Callable[[Layer], Tensor],
    threshold: Callable[[Layer], float],
    parameters: Sequence[Tensor] | None,
    budget: Budget | None = None,
) -> Statistics:
    """Return the statistics of layers, given their sparse copies and thresholds, and all parameters of the model.

    With a budget of time or multiplications, they say what is saved of these, too.
    """
    ordered: list[Layer] = []
    counts: list[list[float]] = []
    penalty = 0.0
    for unit in units(layers):
        us = [sparse(layer) for layer in unit.layers]
        ordered += unit.layers
        counts += [_counts(layer, u) for layer, u in zip(unit.layers, us, strict=True)]
        penalty += unit.penalty_value(us)
    rows = [_row(layer, threshold(layer), n) for layer, n in zip(ordered, totals(ordered, counts), strict=True)]
    sparsified = {id(layer.parameter) for layer in layers}
    others = [Layer("", p) for p in parameters or () if id(p) not in sparsified]
    other_zeros = totals(others, [[zeros(other.local)] for other in others])
    times = None if budget is None else budget.times
    costs = [layer.multiplications for layer in ordered] if budget is not None and budget.by == "flops" else []
    whole = sum(cost * row.weights for cost, row in zip(costs, rows, strict=False))
    saved = sum(cost * row.zeros for cost, row in zip(costs, rows, strict=False))
    return Statistics(
        layers=tuple(rows),
        parameters=sum(other.parameter.numel() for other in others) + sum(row.weights for row in rows),
        parameter_zeros=sum(int(count) for (count,) in other_zeros) + sum(row.zeros for row in rows),
        penalty=penalty,
        coupling=sum((row.beta or 0.0) / 2 * row.gap**2 for row in rows),
        speedup=None if times is None else times.speedup({row.name: 1 - row.sparsity for row in rows}),
        multiplications_saved=saved / whole if whole else None,
    )


def _counts(layer: Layer, u: Tensor) -> list[float]:
    """Return the zeros, the squared gap, the groups and the groups of zeros of the part of a layer that is here."""
    members = torch.ones(0) if layer.elementwise else layer.counts(u != 0)  # non-zero weights of each group
    members = members if layer.division is None else layer.division.owned(members)
    return [zeros(u), float(torch.linalg.vector_norm(layer.w - u)) ** 2, members.numel(), zeros(members)]


def _row(layer: Layer, threshold: float, counts: Sequence[float]) -> LayerStatistics:
    zeros, squared_gap, groups, zero_groups = counts
    return LayerStatistics(
        name=layer.name,
        shape=tuple(layer.parameter.shape),
        zeros=int(zeros),
        gap=sqrt(squared_gap),
        threshold=threshold,
        lam=None if layer.penalty is None else layer.penalty.lam,
        beta=layer.beta,
        groups=None if layer.elementwise else int(groups),
        zero_groups=int(zero_groups),
    )


def describe(
    kind: str, layers: Sequence[Layer], budget: Budget | None, state: str, statistics: Statistics | None
) -> str:
    """Return one line with the method, its penalty, target, state, layers and zeros, as far as available."""
    weights = sum(layer.parameter.numel() for layer in layers)
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
        yield f"sparsity={budget.sparsity:g}" if budget.speedup is None else f"speedup={budget.speedup:g}"
        yield f"steps={budget.steps}"
    elif own := sorted({layer.sparsity for layer in layers if layer.sparsity is not None}):
        yield "sparsity=" + "/".join(f"{sparsity:g}" for sparsity in own)
