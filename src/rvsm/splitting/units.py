"""Units of selection: the groups of one layer, or the groups that several layers share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rvsm.penalties import Grouped
from rvsm.splitting.layers import Layer
from rvsm.splitting.ranks import ALONE, Ranks


@dataclass(frozen=True, eq=False)
class Unit:
    """Layers that have the same groups: a single layer, or all layers of a coupling."""

    layers: tuple[Layer, ...]

    @property
    def first(self) -> Layer:
        """The first layer, for the options that all share: the penalty, the target, the kind of groups."""
        return self.layers[0]

    @property
    def name(self) -> str:
        """The name to use in error messages."""
        others = len(self.layers) - 1
        return repr(self.first.name) + (f" and {others} parameters coupled with it" if others else "")

    @property
    def ranks(self) -> Ranks:
        """The processes among which the groups are divided."""
        return ALONE

    @property
    def weights(self) -> int:
        """The number of weights."""
        return sum(layer.w.numel() for layer in self.layers)

    def magnitudes(self, at: Sequence[Tensor] | None = None) -> Tensor:
        """Return the magnitudes of the groups, at w or at other given weights."""
        ws = [layer.w.detach() for layer in self.layers] if at is None else at
        if self.first.coupling is None:
            return self.first.magnitudes(ws[0])
        squares = self._sum(layer.norms(w).square() for layer, w in zip(self.layers, ws, strict=True))
        return (squares / self.sizes().to(squares) if self.first.groups.weighted else squares).sqrt()

    def sizes(self) -> Tensor:
        """Return the number of weights in each group, broadcastable to the shape of the magnitudes."""
        return self.costs(lambda _: 1)

    def costs(self, of: Callable[[Layer], float]) -> Tensor:
        """Return the cost of each group, given the cost per weight of each layer."""
        if self.first.coupling is None:
            return self.first.group_sizes().double() * of(self.first)
        return self._sum(
            (layer.group_sizes().double() * of(layer)).expand(layer.norms(layer.w.detach()).shape)
            for layer in self.layers
        )

    def cost(self, of: Callable[[Layer], float]) -> float:
        """Return the mean cost per weight, given the cost per weight of each layer."""
        if len(self.layers) == 1:
            return of(self.first)
        return sum(layer.w.numel() * of(layer) for layer in self.layers) / self.weights

    def deviation(self) -> float:
        """Return the standard deviation of the weights; 1 if it is zero or undefined."""
        ws = [layer.w.detach() for layer in self.layers]
        w = ws[0] if len(ws) == 1 else torch.cat([w.flatten() for w in ws])
        return (float(w.std()) or 1.0) if w.numel() > 1 else 1.0

    def spread(self, values: Tensor) -> dict[str, Tensor]:
        """Return the value of its group for each weight, by layer name."""
        return {layer.name: layer.spread(layer.part(values)) for layer in self.layers}

    def penalty_value(self, us: Sequence[Tensor]) -> float:
        """Return λP(u)."""
        if self.first.coupling is None or self.first.penalty is None:
            return self.first.penalty_value(us[0])
        return float(Grouped(self.first.penalty, self.first.groups).value_at(self.magnitudes(us), self.sizes()))

    def _sum(self, parts: Iterable[Tensor]) -> Tensor:
        """Sum the contributions of the layers to the shared groups."""
        assert self.first.coupling is not None
        total: Tensor | None = None
        for layer, part in zip(self.layers, parts, strict=True):
            assert layer.parts_of is not None
            if total is None:
                total = torch.zeros(self.first.coupling.count, dtype=part.dtype, device=layer.w.device)
            total.index_add_(0, layer.parts_of.to(total.device), part.flatten().to(total))
        assert total is not None
        return total


def units(layers: Iterable[Layer]) -> list[Unit]:
    """Return the layers as units: layers that share groups form one unit, at the position of the first."""
    together: dict[int, list[Layer]] = {}
    for layer in layers:
        together.setdefault(id(layer if layer.coupling is None else layer.coupling), []).append(layer)
    return [Unit(tuple(found)) for found in together.values()]


def measure_couplings(layers: Iterable[Layer]) -> None:
    """Measure the groups that several layers share, at the current w."""
    for unit in units(layers):
        if unit.first.coupling is not None:
            unit.first.coupling.magnitudes = unit.magnitudes()
