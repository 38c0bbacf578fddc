"""Units of selection: the groups of one layer, or the groups that several layers share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from rvsm.penalties import Grouped
from rvsm.splitting.layers import Coupling, Layer, ranks_of
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
        return ranks_of(self.layers)

    @property
    def weights(self) -> int:
        """The number of weights."""
        return sum(layer.parameter.numel() for layer in self.layers)

    @property
    def joint(self) -> Coupling | None:
        """The groups that have parts in several layers, or on several processes."""
        return self.first.joint

    def magnitudes(self, at: Sequence[Tensor] | None = None) -> Tensor:
        """Return the magnitudes of the groups that belong to this process, at w or at other given weights.

        On one process, these are all groups. Among several, each group belongs to the first that has weights of it.
        """
        ws = [layer.w.detach() for layer in self.layers] if at is None else at
        joint = None if self.joint is None else self.joint_magnitudes(self.ranks.sum_(self.squares(ws)))
        return self._magnitudes(ws[0], joint)

    def measured(self, at: Tensor) -> Tensor:
        """Return the same, but joint groups as they were last measured, where only some of their parts are given."""
        return self._magnitudes(at, None if self.joint is None else self.joint.magnitudes)

    @property
    def groups(self) -> int:
        """The number of groups."""
        if self.first.coupling is not None:
            return self.first.coupling.count
        return round(self._total(self._owned(self.first.norms(self.first.w.detach())).numel()))

    def squares(self, at: Sequence[Tensor]) -> Tensor:
        """Return the sums of squares of the joint groups, over the weights that are here.

        Among several processes, they are float64: their sum then does not depend on the order, once it is rounded, and
        a group whose magnitude is the threshold is on the same side of it wherever and whenever it is measured.
        """
        if self.first.coupling is None:
            assert self.first.division is not None
            return self.first.division.to_shared(self.first.norms(at[0]).double().square())
        pairs = [(layer, w) for layer, w in zip(self.layers, at, strict=True) if self._counts_here(layer)]
        norms = [(layer, layer.norms(w)) for layer, w in pairs]
        exact = self.ranks is not ALONE
        return self._sum((layer.parts_here, (n.double() if exact else n).square()) for layer, n in norms)

    def joint_magnitudes(self, squares: Tensor) -> Tensor:
        """Return the magnitudes of the joint groups, given their sums of squares over all layers and processes."""
        if self.first.groups.weighted:
            sizes = self._all_costs(lambda _: 1)
            if self.first.coupling is None and self.first.division is not None:
                sizes = self.first.division.shared_of(sizes)
            squares = squares / sizes.to(squares)
        return squares.sqrt().to(self.first.parameter.dtype)

    def sizes(self) -> Tensor:
        """Return the number of weights in each group, broadcastable to the shape of the magnitudes."""
        return self.costs(lambda _: 1)

    def costs(self, of: Callable[[Layer], float]) -> Tensor:
        """Return the cost of each group, given the cost per weight of each layer."""
        costs, division = self._all_costs(of), self.first.division
        return self._owned(costs if self.first.coupling is not None or division is None else division.held(costs))

    def cost(self, of: Callable[[Layer], float]) -> float:
        """Return the mean cost per weight, given the cost per weight of each layer."""
        if len(self.layers) == 1:
            return of(self.first)
        return sum(layer.parameter.numel() * of(layer) for layer in self.layers) / self.weights

    def deviation(self) -> float:
        """Return the standard deviation of the weights; 1 if it is zero or undefined."""
        ws = [layer.w.detach() for layer in self.layers if self._counts_here(layer)]
        if self.ranks is ALONE:
            w = ws[0] if len(ws) == 1 else torch.cat([w.flatten() for w in ws])
            return (float(w.std()) or 1.0) if w.numel() > 1 else 1.0
        mean = self._total(sum(float(w.sum(dtype=torch.float64)) for w in ws)) / self.weights
        squares = self._total(sum(float((w.double() - mean).square().sum()) for w in ws))
        deviation = torch.tensor(sqrt(squares / max(self.weights - 1, 1)), dtype=ws[0].dtype)  # rounded, as that of one
        return float(deviation) or 1.0

    def spread(self, chosen: Tensor) -> dict[str, Tensor]:
        """Return masks of the weights in chosen groups by layer name, given which groups of this process are chosen."""
        if self.joint is None:
            return {self.first.name: self.first.spread(chosen)}
        if self.first.coupling is not None:
            joint = torch.zeros(self.first.coupling.count, dtype=torch.int32, device=chosen.device)
            joint[: chosen.numel()] = chosen
        else:
            assert self.first.division is not None
            chosen = self.first.division.disowned(chosen)
            joint = self.first.division.to_shared(chosen.int())
        everywhere = self.ranks.sum_(joint) > 0
        return {layer.name: layer.spread(layer.with_joint(chosen, everywhere)) for layer in self.layers}

    def penalty_value(self, us: Sequence[Tensor]) -> float:
        """Return λP(u)."""
        if self.first.penalty is None:
            return 0.0
        penalty = Grouped(self.first.penalty, self.first.groups)
        return self._total(float(penalty.value_at(self.magnitudes(us), self.sizes())))

    def _magnitudes(self, w: Tensor, joint: Tensor | None) -> Tensor:
        if joint is None:
            return self._owned(self.first.magnitudes(w))
        whole = self.first.coupling is not None
        return self._owned(joint if whole else self.first.with_joint(self.first.magnitudes(w), joint))

    def _owned(self, values: Tensor) -> Tensor:
        """Return the values of the groups that belong to this process."""
        if self.first.coupling is not None:  # few: they all belong to the first one
            return values if self.ranks.rank == 0 else values[:0]
        return values if self.first.division is None else self.first.division.owned(values)

    def _all_costs(self, of: Callable[[Layer], float]) -> Tensor:
        """Return the cost of each group, wherever its weights are."""
        if self.first.coupling is None:
            return self.first.group_sizes().double() * of(self.first)
        return self._sum((layer.parts_of, layer.group_sizes().double() * of(layer)) for layer in self.layers)

    def _counts_here(self, layer: Layer) -> bool:
        """Return whether the weights of a layer count on this process; those that all processes have count once."""
        return layer.ranks is not ALONE or self.ranks.rank == 0

    def _total(self, number: float) -> float:
        """Return the sum of a number over the processes."""
        if self.ranks is ALONE:
            return number
        return float(self.ranks.sum_(torch.tensor(number, dtype=torch.float64, device=self.first.local.device)))

    def _sum(self, parts: Iterable[tuple[Tensor | None, Tensor]]) -> Tensor:
        """Sum contributions of layers to shared groups: the index of the group, and the number, or one for all."""
        assert self.first.coupling is not None
        device = self.first.local.device
        total: Tensor | None = None
        for of, numbers in parts:
            assert of is not None
            if total is None:
                total = torch.zeros(self.first.coupling.count, dtype=numbers.dtype, device=device)
            total.index_add_(0, of.to(device), numbers.flatten().to(total).expand(of.shape))
        assert total is not None
        return total


def units(layers: Iterable[Layer]) -> list[Unit]:
    """Return the layers as units: layers that share groups form one unit, at the position of the first."""
    together: dict[int, list[Layer]] = {}
    for layer in layers:
        together.setdefault(id(layer if layer.coupling is None else layer.coupling), []).append(layer)
    return [Unit(tuple(found)) for found in together.values()]


def measure_couplings(layers: Iterable[Layer], at: Callable[[Layer], Tensor]) -> None:
    """Measure the groups that have parts in several layers or on several processes, at the current weights.

    What all layers have to tell other processes is one message.
    """
    joint = [unit for unit in units(layers) if unit.joint is not None]
    squares = [unit.squares([at(layer) for layer in unit.layers]) for unit in joint]
    divided = [i for i, unit in enumerate(joint) if unit.ranks is not ALONE]
    if divided:
        message = torch.cat([squares[i].flatten() for i in divided])
        summed = torch.split(joint[divided[0]].ranks.sum_(message), [squares[i].numel() for i in divided])
        for i, total in zip(divided, summed, strict=True):
            squares[i] = total.view(squares[i].shape).to(squares[i])
    for unit, total in zip(joint, squares, strict=True):
        assert unit.joint is not None
        unit.joint.magnitudes = unit.joint_magnitudes(total)
