"""One line that says what a method is and how far it has come."""

from collections.abc import Iterator, Sequence

from rvsm.metrics import Statistics
from rvsm.splitting.budget import Budget
from rvsm.splitting.layers import Layer


def describe(
    kind: str, layers: Sequence[Layer], budget: Budget | None, state: str, statistics: Statistics | None
) -> str:
    """Return the method, its penalty, its target, its state, its layers and their zeros, as far as there are any."""
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
    """Yield the penalties, each once; by name alone where a budget sets their λ."""
    penalties = (layer.template for layer in layers if layer.template is not None)
    yield from dict.fromkeys(type(penalty).__name__ if named else repr(penalty) for penalty in penalties)


def _targets(layers: Sequence[Layer], budget: Budget | None) -> Iterator[str]:
    if budget is not None:
        yield f"sparsity={budget.sparsity:g}"
        yield f"steps={budget.steps}"
    elif own := sorted({layer.sparsity for layer in layers if layer.sparsity is not None}):
        yield "sparsity=" + "/".join(f"{sparsity:g}" for sparsity in own)
