"""Choose which groups of weights to remove, so that a target is met to within one group."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Candidates:
    """The groups of one layer that can be removed, smallest first.

    Attributes:
        magnitudes: the magnitudes of the groups, sorted.
        cost: what a group counts towards the target, in weights or multiplications; if groups differ, an array with the
            cost of the n smallest groups, n = 0, 1, ….
        limit: how many can be removed at most, so that the layer stays alive.

    """

    magnitudes: NDArray[np.floating]
    cost: NDArray[np.floating] | float
    limit: int

    @classmethod
    def of(cls, magnitudes: Tensor, cost: Tensor, kept: int) -> "Candidates":
        """Sort the groups of a layer, of which at least ``kept`` stay."""
        values = magnitudes.flatten()
        limit = len(values) - kept
        if cost.numel() == 1:
            return cls(_sorted(values), float(cost), limit)
        order = np.argsort(values.cpu().numpy(), kind="stable")
        costs = cost.expand_as(magnitudes).flatten().cpu().double().numpy()[order]
        return cls(values.cpu().numpy()[order], np.concatenate([[0.0], np.cumsum(costs)]), limit)

    @property
    def total(self) -> float:
        """The cost of the whole layer."""
        return self.cost_of(len(self.magnitudes))

    def cost_of(self, count: int) -> float:
        """Return the cost of the ``count`` smallest groups."""
        return self.cost * count if isinstance(self.cost, float) else float(self.cost[count])

    def count_for(self, cost: float) -> int:
        """Return the number of smallest groups whose cost is closest to a given one."""
        if isinstance(self.cost, float):
            return min(max(round(cost / self.cost), 0), len(self.magnitudes))
        return int(np.abs(self.cost - cost).argmin())

    def below(self, threshold: float, *, inclusive: bool) -> int:
        """Return how many groups a threshold removes, up to the limit."""
        # In the type of the magnitudes; otherwise NumPy would convert all of them to that of the threshold.
        exact = self.magnitudes.dtype.type(threshold)
        return min(int(self.magnitudes.searchsorted(exact, side="right" if inclusive else "left")), self.limit)

    def cutoff(self, count: int, wanted: float | None = None) -> float:
        """Return a threshold that removes the ``count`` smallest groups, and keeps the next one despite rounding.

        It is ``wanted`` if that removes exactly these groups, otherwise the closest threshold that does. By default it
        lies halfway between the last removed group and the next one.
        """
        if count == 0:
            return 0.0
        last = float(self.magnitudes[count - 1])
        if count == len(self.magnitudes):
            return last
        following = float(self.magnitudes[count])
        most = following * (1 - 16 * float(np.finfo(self.magnitudes.dtype).eps))
        return min((last + following) / 2 if wanted is None else max(wanted, last), most)


def together(layers: Sequence[Candidates], target: float) -> tuple[list[int], float]:
    """Return how many groups of each layer a common threshold removes for a cost of ``target``, and the threshold.

    Groups that tie at the threshold are removed in the order of the layers until the target is met.
    """
    low, high = 0.0, max((float(layer.magnitudes[-1]) for layer in layers), default=0.0)

    def cost(threshold: float) -> float:
        return sum(layer.cost_of(layer.below(threshold, inclusive=True)) for layer in layers)

    if cost(low) >= target:
        high = low
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if cost(middle) >= target else (middle, high)
    counts = [layer.below(high, inclusive=False) for layer in layers]
    missing = target - sum(layer.cost_of(count) for layer, count in zip(layers, counts, strict=True))
    for i, layer in enumerate(layers):
        taken = layer.cost_of(counts[i])
        most = layer.below(high, inclusive=True)
        counts[i] = min(max(layer.count_for(taken + missing), counts[i]), most)
        missing -= layer.cost_of(counts[i]) - taken
    return counts, float(layers[0].magnitudes.dtype.type(high)) if layers else high


def smallest(magnitudes: Tensor, count: int) -> Tensor:
    """Return a mask of exactly the ``count`` smallest entries; among ties, the first ones.

    >>> smallest(torch.tensor([3.0, 1.0, 1.0, 2.0]), 1)
    tensor([False,  True, False, False])
    """
    values = magnitudes.flatten()
    if count == 0:
        return torch.zeros_like(magnitudes, dtype=torch.bool)
    largest_taken = float(np.partition(values.cpu().numpy(), count - 1)[count - 1])
    mask = values <= largest_taken
    if (surplus := int(mask.count_nonzero()) - count) > 0:
        ties = (values == largest_taken).nonzero().flatten()
        mask[ties[-surplus:]] = False
    return mask.view(magnitudes.shape)


def _sorted(values: Tensor) -> NDArray[np.floating]:
    # On a CPU NumPy's vectorised sort takes a twentieth of the time of torch's.
    return values.sort().values.cpu().numpy() if values.is_cuda else np.sort(values.cpu().numpy())
