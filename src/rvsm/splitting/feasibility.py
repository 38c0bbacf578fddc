"""Whether a target can be met, and an error that names one that can."""

from dataclasses import replace
from math import ceil, floor, log10

from rvsm.splitting.allocation import Allocation
from rvsm.splitting.selection import counts_for


def require_feasible(allocation: Allocation) -> None:
    """Raise if the target of a budget cannot be met while each layer keeps its floor."""
    budget, units = allocation.budget, allocation.units
    uniform = budget.scope == "layer" and budget.by != "time"
    kept = "the default floor" if budget.floor is None else f"floor={budget.floor}"
    own = [unit.first.sparsity for unit in units]
    _require_own(allocation, [budget.goal if share is None and uniform else share or 0.0 for share in own], kept)
    if uniform or _is_feasible(allocation):
        return
    least, most = _limits(allocation)
    wanted = f"sparsity {budget.sparsity}"
    shown = [f"{saved:.6g}" for saved in (least, most)]
    if budget.speedup is not None:
        wanted = f"speedup {budget.speedup:g}"
        shown = [f"{_rounded_up(1 / (1 - least))}", f"{_rounded_down(1 / (1 - most))}"]
    elif budget.by == "time":
        wanted = f"saving {budget.sparsity} of the time"
    if None not in own:
        raise ValueError(
            f"{wanted} is not feasible: every layer has a sparsity of its own, and together they result in {shown[0]};"
            " leave at least one layer without"
        )
    raise ValueError(
        f"{wanted} is not feasible: with {kept}, at least one group kept in each layer and the overrides, it must be"
        f" between {shown[0]} and {shown[1]}; change the target, the floor or the overrides"
    )


def _require_own(allocation: Allocation, shares: list[float], kept: str) -> None:
    """Raise if a layer cannot have the sparsity that it has to have, whatever the others have."""
    found = allocation.candidates(allocation.budget.goal)
    counts = counts_for(
        [c.population for c in found], [share * c.population.total for share, c in zip(shares, found, strict=True)]
    )
    # The most restrictive layer first: a sparsity that the error calls feasible is then feasible for all.
    for i in sorted(range(len(found)), key=lambda i: found[i].most / found[i].population.total):
        if counts[i] > found[i].limit:
            raise ValueError(
                f"sparsity {shares[i]} of {allocation.units[i].name} is not feasible: with {kept} and at least one"
                f" group kept, the largest is {found[i].most / found[i].population.total:.6g}; lower the sparsity or"
                " the floor, or exclude the layer"
            )


def _is_feasible(allocation: Allocation) -> bool:
    least, most, granularity, total = _extremes(allocation)
    return least - granularity <= allocation.budget.goal * total < most + granularity


def _limits(allocation: Allocation) -> tuple[float, float]:
    """Return the least and the largest fraction that can be saved: where default floors depend on it, a search."""
    budget = allocation.budget
    least, most, _, total = _extremes(allocation)
    lowest, highest = (1 - allocation.costs.left((total - saved) / total) for saved in (least, most))
    if budget.floor is None and highest > lowest:
        low, high = lowest, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            feasible = _is_feasible(Allocation(replace(budget, sparsity=middle, speedup=None), allocation.layers))
            low, high = (middle, high) if feasible else (low, middle)
        highest = low
    return lowest, highest


def _extremes(allocation: Allocation) -> tuple[float, float, float, float]:
    """Return how much must be saved, how much can be, how much one group is worth, and what there is in all."""
    found = allocation.candidates(allocation.budget.goal)
    pairs = [(c, unit.first.sparsity) for c, unit in zip(found, allocation.units, strict=True)]
    least = sum(c.value(c.population.total * share) for c, share in pairs if share is not None)
    most = least + sum(c.value(c.most) for c, share in pairs if share is None)
    granularity = max(c.value(c.population.total) / c.population.total * c.population.cost for c in found)
    return least, most, granularity, allocation.whole(found)


def _rounded_down(number: float) -> float:
    """Return a positive number with three digits, not rounded up.

    >>> _rounded_down(12.3999), _rounded_down(0.5)
    (12.3, 0.5)
    """
    unit = 10.0 ** (floor(log10(number)) - 2)
    return round(floor(number / unit + 1e-9) * unit, 12)


def _rounded_up(number: float) -> float:
    """Return a positive number with three digits, not rounded down.

    >>> _rounded_up(12.301), _rounded_up(1.0)
    (12.4, 1.0)
    """
    unit = 10.0 ** (floor(log10(number)) - 2)
    return round(ceil(number / unit - 1e-9) * unit, 12)
