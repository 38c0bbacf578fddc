"""A sparsified tensor, and what is known of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from rvsm.groups import Channel, Element, Grouping
from rvsm.penalties import Grouped, Penalty


@dataclass(eq=False)
class Coupling:
    """Groups that have parts in several layers.

    Attributes:
        count: the number of groups.
        magnitudes: those of the whole groups, when they were measured last; the parts are moved by these one after the
            other, and moving one part does not change what the others see.

    """

    count: int
    magnitudes: Tensor | None = None


# Elementwise work goes through the weights in blocks that stay in the cache between two kernels.
_BLOCK = 1 << 18


@dataclass
class Layer:
    """One sparsified tensor.

    A method may let the network compute with other weights than w between two steps, as RVSM does when it takes the
    gradient at v: then `parameter` holds v and w is kept beside it. In all other cases the parameter is w.

    Attributes:
        name: the parameter's name in the model.
        parameter: the tensor in the model; looked up again at each attach, since wrappers may replace it.
        groups: how its weights are grouped.
        penalty: the penalty with its present λ; None means that nothing is penalised now.
        template: the penalty as the user gave it, from which a budget makes the present one.
        beta: the relaxation β (ρ for ADMM); None until it is known.
        sparsity: a target of its own, if it has one.
        multiplications: how often each weight is multiplied per example.
        param_group: the index of the optimizer's parameter group; None if the optimizer does not train it.
        trained: whether it has had a gradient; what never has one is not counted in a budget.
        convolution_groups: the number g of groups of a convolution.
        transposed: whether the weight is that of a transposed convolution, [in, out/g, *kernel].
        named: whether the user has named it, rather than a pattern or the rule of types.
        coupling: the groups that it shares with other layers, if its own are parts of such.
        parts_of: which of those each of its own groups is a part of.

    """

    name: str
    parameter: Tensor
    groups: Grouping = field(default_factory=Element)
    penalty: Penalty | None = None
    template: Penalty | None = None
    beta: float | None = None
    sparsity: float | None = None
    multiplications: float = 1.0
    param_group: int | None = None
    trained: bool = False
    convolution_groups: int = 1
    transposed: bool = False
    named: bool = False
    coupling: Coupling | None = None
    parts_of: Tensor | None = None
    _kept: Tensor | None = field(default=None, init=False, repr=False)  # memory for w, while the parameter holds v
    _away: bool = field(default=False, init=False, repr=False)  # whether w is there now

    def at(self, w: Tensor) -> "Layer":
        """Return this layer with another tensor in the place of its parameter."""
        return replace(self, parameter=w)

    @property
    def w(self) -> Tensor:
        """The weights: the parameter, unless that holds v."""
        return self._kept if self._away and self._kept is not None else self.parameter

    @property
    def away(self) -> Tensor | None:
        """W, if the parameter holds v."""
        return self._kept if self._away else None

    @away.setter
    def away(self, w: Tensor | None) -> None:
        self._away = w is not None
        self._kept = None if w is None else torch.empty_like(self.parameter, requires_grad=False).copy_(w)

    def set_out(self, point: Callable[[Tensor], Tensor]) -> None:
        """Put v = point(w) into the parameter, and keep w beside it."""
        if self._kept is None:
            self._kept = torch.empty_like(self.parameter, requires_grad=False)
        self._away = True  # first: stopped from here on, w is found where it still is, in the parameter
        for v, w in self._blocks(self.parameter.detach(), self._kept):
            w.copy_(v)
            v.copy_(point(w))

    def look_back(self, point: Callable[[Tensor], Tensor]) -> None:
        """Take over what others have written into the parameter since it got v = point(w): that is w now.

        A loaded checkpoint, a clamp or a swapped average is such a case. Rounding is not: v may have been computed on
        another machine, before a checkpoint was loaded.
        """
        if self._away and self._kept is not None and self._kept.dtype == self.parameter.dtype:  # else v was converted
            for found, w in self._blocks(self.parameter.detach(), self._kept):
                if not torch.equal(v := point(w), found):
                    w.copy_(torch.where(torch.isclose(found, v, rtol=1e-5, atol=0.0), w, found))

    def come_back(self, point: Callable[[Tensor], Tensor]) -> None:
        """Put w back into the parameter."""
        self.look_back(point)
        if self._away and self._kept is not None:
            self.parameter.detach().copy_(self._kept)
            self._away = False

    @property
    def elementwise(self) -> bool:
        """Whether each weight stands for itself."""
        return isinstance(self.groups, Element)

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Return the proximal operator of this layer's penalty and groups at ``w``, or at one of its blocks."""
        if self.penalty is None:
            return w.clone()
        return self._restored(Grouped(self.penalty, self.groups).prox(self._oriented(w), step, self._of_whole_groups()))

    def blocks(self) -> Iterator[Tensor]:
        """Yield views that cover w, small enough to stay in the cache; w as a whole if its weights are grouped."""
        for (w,) in self._blocks(self.w):
            yield w

    def penalty_value(self, u: Tensor) -> float:
        """Return λP(u)."""
        if self.penalty is None:
            return 0.0
        return float(Grouped(self.penalty, self.groups).value(self._oriented(u)))

    def magnitudes(self, w: Tensor) -> Tensor:
        """Return the magnitude of each group of ``w``."""
        return self.groups.magnitudes(self._oriented(w))

    def norms(self, w: Tensor) -> Tensor:
        """Return the norm of each group of ``w``."""
        return self.groups.norms(self._oriented(w))

    def part(self, values: Tensor) -> Tensor:
        """Return the values of this layer's groups, given those of all groups that it has a part in."""
        if self.parts_of is None:
            return values
        return values[self.parts_of].view(-1, *[1] * (self.parameter.dim() - 1))

    def _of_whole_groups(self) -> Tensor | None:
        """Return the magnitudes of the groups that this layer's are parts of; None if they are whole."""
        if self.coupling is None or self.coupling.magnitudes is None:
            return None
        return self.part(self.coupling.magnitudes)

    @property
    def outputs(self) -> int:
        """The number of outputs: channels or features."""
        return self.parameter.shape[1] * self.convolution_groups if self.transposed else self.parameter.shape[0]

    def group_sizes(self) -> Tensor:
        """Return the number of weights of each group, broadcastable to the shape of the magnitudes."""
        return self.groups.sizes(self._oriented(self.w))

    def removes_whole(self, side: Literal["output", "input"]) -> bool:
        """Return whether a group holds all the weights of an output of the layer, or all that read an input."""
        w = self._oriented(self.w.detach())
        if w.dim() < 2:
            return False
        magnitudes = self.groups.magnitudes(w)
        numbered = torch.arange(magnitudes.numel(), device=w.device).view(magnitudes.shape)
        one = self.groups.spread(numbered, w).select(0 if side == "output" else 1, 0)
        return bool((one == one.flatten()[0]).all())

    def spread(self, values: Tensor) -> Tensor:
        """Give each weight the value of its group, in the memory order of w."""
        spread = self.groups.spread(values, self._oriented(self.w))
        return torch.empty_like(self.w, dtype=values.dtype).copy_(self._restored(spread))

    def _oriented(self, w: Tensor) -> Tensor:
        """Bring a weight into the order [out, in, *kernel] in which groups are defined."""
        if self.elementwise:
            return w
        w = _swap(w, self.convolution_groups) if self.transposed else w
        if self._by_input:
            # [out, in/g] holds the input channels of each group in turn; [out/g, in] has one column for each of them.
            w = w.reshape(self.convolution_groups, -1, *w.shape[1:]).transpose(0, 1).flatten(1, 2)
        return w

    def _restored(self, w: Tensor) -> Tensor:
        """Undo `_oriented`."""
        if self.elementwise:
            return w
        if self._by_input:
            w = w.reshape(w.shape[0], self.convolution_groups, -1, *w.shape[2:]).transpose(0, 1).flatten(0, 1)
        return _swap(w, self.convolution_groups) if self.transposed else w

    def _blocks(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield corresponding views that cover the tensors; these themselves, if their memory orders differ."""
        alike = self.elementwise and len({tensor.stride() for tensor in tensors}) == 1
        flat = [_flat(tensor) for tensor in tensors] if alike else [None]
        if any(view is None for view in flat):
            yield tensors
        else:
            yield from zip(*(torch.split(view, _BLOCK) for view in flat if view is not None), strict=True)

    @property
    def _by_input(self) -> bool:
        return self.convolution_groups > 1 and isinstance(self.groups, Channel)


def _swap(w: Tensor, groups: int) -> Tensor:
    """Change a transposed convolution's [in, out/g, *kernel] into a convolution's [out, in/g, *kernel], or back."""
    return w.reshape(groups, -1, *w.shape[1:]).transpose(1, 2).flatten(0, 1)


def _flat(w: Tensor) -> Tensor | None:
    """View a dense tensor as one dimension in the order of its memory, whatever its layout; None if it has gaps."""
    order = sorted(range(w.dim()), key=w.stride, reverse=True)
    ordered = w.permute(order)
    return ordered.view(-1) if ordered.is_contiguous() else None


def require_finite(layer: Layer) -> None:
    """Raise if a layer holds NaN or infinity."""
    if not torch.isfinite(layer.w.detach().abs().max()):
        raise RuntimeError(
            f"the weights of {layer.name!r} are not finite: the training has diverged; go back to the last good"
            " checkpoint and lower the learning rate"
        )


def require_whole(name: str, w: Tensor) -> None:
    """Raise for shards: a DTensor, or what FullyShardedDataParallel makes of a parameter, which it marks."""
    if hasattr(w, "to_local") or hasattr(w, "_fsdp_flattened"):
        kind = type(w).__name__ if hasattr(w, "to_local") else "shard of FullyShardedDataParallel"
        raise ValueError(
            f"{name!r} is a {kind}, of which this process holds only a part, and a threshold needs the quantiles"
            " of all; train with DistributedDataParallel instead of FSDP"
        )


def require_values(name: str, w: Tensor) -> None:
    """Raise for a tensor that has a shape but no values."""
    if w.is_meta:
        raise ValueError(
            f"{name!r} is on the device 'meta' and has no values; move the model to a device with"
            " model.to_empty(device='cpu') and load its weights before sparsifying it"
        )


def require_dense_gradient(name: str, gradient: Tensor | None) -> None:
    """Raise if a pull, which is of all weights, cannot be added to a gradient of a few."""
    if gradient is not None and gradient.layout != torch.strided:
        raise ValueError(
            f"{name!r} has a sparse gradient, to which decoupled=False cannot add the pull of all its weights; leave"
            " the pull decoupled, or make the embedding with sparse=False"
        )


def require_trainable(name: str, w: Tensor) -> None:
    """Raise for tensors that cannot be pulled: shards, shapes without values, and types too short for small steps."""
    require_whole(name, w)
    require_values(name, w)
    if w.is_complex():
        raise ValueError(f"{name!r} is complex, and penalties are of real weights; leave it out with exclude=[...]")
    if w.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"{name!r} is {str(w.dtype).removeprefix('torch.')}, in which a pull of less than one part in 128 is"
            " rounded away and the weight never moves; keep the weights in float32 and use torch.autocast for speed"
        )
