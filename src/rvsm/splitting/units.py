"""What is chosen together: the groups of one layer, or those that several layers share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rvsm.penalties import Grouped
from rvsm.splitting.layers import Layer


@dataclass(frozen=True, eq=False)
class Unit:
    """Layers whose groups are the same: one alone, or all those of a coupling."""

    layers: tuple[Layer, ...]

    @property
    def first(self) -> Layer:
        """One of the layers, for what they have in common: the penalty, the target, the kind of groups."""
        return self.layers[0]

    @property
    def name(self) -> str:
        """What an error calls it."""
        others = len(self.layers) - 1
        return repr(self.first.name) + (f" and {others} parameters coupled with it" if others else "")

    @property
    def weights(self) -> int:
        """The number of weights."""
        return sum(layer.w.numel() for layer in self.layers)

    def magnitudes(self, at: Sequence[Tensor] | None = None) -> Tensor:
        """Return the magnitudes of the groups, at w or at other weights of the layers."""
        ws = [layer.w.detach() for layer in self.layers] if at is None else at
        if self.first.coupling is None:
            return self.first.magnitudes(ws[0])
        squares = self._sum(layer.norms(w).square() for layer, w in zip(self.layers, ws, strict=True))
        return (squares / self.sizes().to(squares) if self.first.groups.weighted else squares).sqrt()

    def sizes(self) -> Tensor:
        """Return the number of weights of each group, broadcastable to the shape of the magnitudes."""
        return self.costs(lambda _: 1)

    def costs(self, of: Callable[[Layer], float]) -> Tensor:
        """Return the cost of each group, given that of a weight of each layer."""
        if self.first.coupling is None:
            return self.first.group_sizes().double() * of(self.first)
        return self._sum(
            (layer.group_sizes().double() * of(layer)).expand(layer.norms(layer.w.detach()).shape)
            for layer in self.layers
        )

    def cost(self, of: Callable[[Layer], float]) -> float:
        """Return the cost of a weight, given that of each layer: their mean."""
        if len(self.layers) == 1:
            return of(self.first)
        return sum(layer.w.numel() * of(layer) for layer in self.layers) / self.weights

    def deviation(self) -> float:
        """Return the standard deviation of the weights; 1 if there is none."""
        ws = [layer.w.detach() for layer in self.layers]
        w = ws[0] if len(ws) == 1 else torch.cat([w.flatten() for w in ws])
        return (float(w.std()) or 1.0) if w.numel() > 1 else 1.0

    def spread(self, values: Tensor) -> dict[str, Tensor]:
        """Give each weight the value of its group, by the names of the layers."""
        return {layer.name: layer.spread(layer.part(values)) for layer in self.layers}

    def penalty_value(self, us: Sequence[Tensor]) -> float:
        """Return λP(u)."""
        if self.first.coupling is None or self.first.penalty is None:
            return self.first.penalty_value(us[0])
        return float(Grouped(self.first.penalty, self.first.groups).value_at(self.magnitudes(us), self.sizes()))

    def _sum(self, parts: Iterable[Tensor]) -> Tensor:
        """Add what the layers say of their parts of the groups."""
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
    """Return the layers, with those together that share their groups, each where its first layer was."""
    together: dict[int, list[Layer]] = {}
    for layer in layers:
        together.setdefault(id(layer if layer.coupling is None else layer.coupling), []).append(layer)
    return [Unit(tuple(found)) for found in together.values()]


def measure_couplings(layers: Iterable[Layer]) -> None:
    """Measure the groups that several layers share, at the present w."""
    for unit in units(layers):
        if unit.first.coupling is not None:
            unit.first.coupling.magnitudes = unit.magnitudes()
