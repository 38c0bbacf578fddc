"""A sparsified tensor with its options and state, and the list of all such tensors."""

from collections.abc import Iterator
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
        magnitudes: the magnitudes of the whole groups when last measured. The parts are moved one after the other by
            these values, so that moving one part does not affect the others.

    """

    count: int
    magnitudes: Tensor | None = None


# Elementwise operations process the weights in blocks that stay in the cache between two kernels.
_BLOCK = 1 << 18


@dataclass
class Layer:
    """One sparsified tensor.

    Between two steps, a method may let the network compute with weights other than w, as RVSM does when it takes the
    gradient at v. Then `parameter` holds v, and w is kept beside it. Otherwise the parameter is w.

    Attributes:
        name: the parameter's name in the model.
        parameter: the tensor in the model; looked up again at each attach, since wrappers may replace it.
        groups: how its weights are grouped.
        penalty: the penalty with its current λ; None if nothing is penalised now.
        template: the penalty given by the user, from which a budget derives the current one.
        beta: the relaxation β (ρ for ADMM); None until it is known.
        rate: ηβ at the largest learning rate η, if β follows from a total pull; None if β is given.
        sparsity: the layer's own target, if it has one.
        multiplications: how often each weight is multiplied per example.
        memory: the tensors that a method keeps between steps, by kind.
        param_group: the index of the optimizer's parameter group; None if the optimizer does not train it.
        dtype: the type of the parameter when it was attached.
        trained: whether it has had a gradient; layers that never have one are not counted in a budget.
        convolution_groups: the number g of groups of a convolution.
        transposed: whether the weight belongs to a transposed convolution, [in, out/g, *kernel].
        named: whether the user has selected it by name, not by a pattern or by module type.
        coupling: the groups that it shares with other layers, if it does.
        parts_of: the index of the shared group to which each of its own groups belongs.

    """

    name: str
    parameter: Tensor
    groups: Grouping = field(default_factory=Element)
    penalty: Penalty | None = None
    template: Penalty | None = None
    beta: float | None = None
    rate: float | None = None
    sparsity: float | None = None
    multiplications: float = 1.0
    memory: dict[str, Tensor] = field(default_factory=dict)
    param_group: int | None = None
    dtype: torch.dtype | None = None
    trained: bool = False
    convolution_groups: int = 1
    transposed: bool = False
    named: bool = False
    coupling: Coupling | None = None
    parts_of: Tensor | None = None
    _kept: Tensor | None = field(default=None, init=False, repr=False)  # memory for w, while the parameter holds v
    _away: bool = field(default=False, init=False, repr=False)  # whether `_kept` holds w now

    def at(self, w: Tensor) -> "Layer":
        """Return this layer with another tensor as its parameter."""
        return replace(self, parameter=w)

    @property
    def w(self) -> Tensor:
        """The weights: the parameter, unless that holds v."""
        return self._kept if self._away and self._kept is not None else self.parameter

    @property
    def attached(self) -> bool:
        """Whether an optimizer trains it."""
        return self.param_group is not None

    @property
    def prox_step(self) -> float:
        """The step 1/β for the proximal operator; 1 while β is unknown, when nothing is pulled and any value works."""
        return 1 / (self.beta or 1.0)

    @property
    def threshold(self) -> float:
        """The magnitude up to which weights are zero in u; 0 if nothing is penalised."""
        return 0.0 if self.penalty is None else self.penalty.threshold(self.prox_step)

    @threshold.setter
    def threshold(self, t: float) -> None:
        """Set λ accordingly; with a threshold of zero, there is no penalty."""
        if self.template is not None:
            self.penalty = self.template.with_threshold(t, self.prox_step) if t > 0 else None

    def pull(self, lr: float) -> float:
        """Return ηβ, the fraction of the distance to u that w moves in a step; 0 while β is unknown."""
        return lr * (self.beta or 0.0)

    def beta_at(self, lr: float) -> float | None:
        """Return β for a learning rate: the given one, or rate/η₀ for the largest learning rate η₀ so far.

        Thus ηβ is at most ``rate``, the total pull divided by the number of steps, with any schedule.

        >>> layer = Layer("w", torch.ones(2), rate=0.1)
        >>> layer.beta_at(0.0), layer.beta_at(0.5)
        (None, 0.2)
        >>> layer.beta = 0.2
        >>> layer.beta_at(0.25), layer.beta_at(1.0)
        (0.2, 0.1)
        """
        if self.rate is None or lr <= 0:
            return self.beta
        return self.rate / lr if self.beta is None else min(self.beta, self.rate / lr)

    def change_beta(self, beta: float | None) -> float:
        """Change β and λ so that the threshold stays, and return the factor by which β has changed."""
        penalty, before = self.penalty, self.beta or 1.0
        t = self.threshold
        self.beta = beta
        if penalty is not None:
            self.penalty = penalty.with_threshold(t, self.prox_step)
        return (beta or 1.0) / before

    @property
    def away(self) -> Tensor | None:
        """The weights w if the parameter holds v; otherwise None."""
        return self._kept if self._away else None

    @away.setter
    def away(self, w: Tensor | None) -> None:
        self._away = w is not None
        self._kept = None if w is None else torch.empty_like(self.parameter, requires_grad=False).copy_(w)

    def v(self, w: Tensor, alpha: float) -> Tensor:
        """Return v = u + α(w − u) at w, or at one of its blocks."""
        return torch.lerp(self.prox(w), w, alpha)

    def set_out(self, alpha: float) -> None:
        """Put v into the parameter, and keep w beside it."""
        if self._kept is None:
            self._kept = torch.empty_like(self.parameter, requires_grad=False)
        self._away = True  # first: after an interrupt, `look_back` finds w in the parameter
        for v, w in self._blocks(self.parameter.detach(), self._kept):
            w.copy_(v)
            v.copy_(self.v(w, alpha))

    def look_back(self, alpha: float) -> None:
        """Take values that other code has written into the parameter since it got v as the new w.

        Examples are a loaded checkpoint, a clamp or a swapped average. Rounding differences do not count: v may have
        been computed on another machine, before a checkpoint was loaded.
        """
        if self._away and self._kept is not None and self._kept.dtype == self.parameter.dtype:  # else v was converted
            for found, w in self._blocks(self.parameter.detach(), self._kept):
                if not torch.equal(v := self.v(w, alpha), found):
                    w.copy_(torch.where(torch.isclose(found, v, rtol=1e-5, atol=0.0), w, found))

    def come_back(self, alpha: float) -> None:
        """Put w back into the parameter; a parameter that has been frozen meanwhile keeps its values."""
        if not self.parameter.requires_grad:
            self.away = None
        self.look_back(alpha)
        if self._away and self._kept is not None:
            self.parameter.detach().copy_(self._kept)
            self._away = False

    @property
    def elementwise(self) -> bool:
        """Whether each weight is a group of its own."""
        return isinstance(self.groups, Element)

    def prox(self, w: Tensor, step: float | None = None) -> Tensor:
        """Return the proximal operator of this layer's penalty and groups at ``w``, or at one of its blocks.

        The step is 1/β by default.
        """
        if self.penalty is None:
            return w.clone()
        grouped, step = Grouped(self.penalty, self.groups), self.prox_step if step is None else step
        return self._restored(grouped.prox(self._oriented(w), step, self._of_whole_groups()))

    def blocks(self) -> Iterator[Tensor]:
        """Yield views that cover w and fit in the cache; all of w at once if its weights are grouped."""
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
        """Return the values of this layer's groups, given those of all shared groups."""
        if self.parts_of is None:
            return values
        return values[self.parts_of].view(-1, *[1] * (self.parameter.dim() - 1))

    def _of_whole_groups(self) -> Tensor | None:
        """Return the magnitudes of the shared groups, one for each group of this layer; None if it shares none."""
        if self.coupling is None or self.coupling.magnitudes is None:
            return None
        return self.part(self.coupling.magnitudes)

    @property
    def outputs(self) -> int:
        """The number of outputs: channels or features."""
        return self.parameter.shape[1] * self.convolution_groups if self.transposed else self.parameter.shape[0]

    def emptied_outputs(self, unused: Tensor) -> Tensor:
        """Return which weights belong to an output all of whose weights are ``unused``, in a shape that broadcasts."""
        if not self.transposed:
            return unused.flatten(1).all(1).view(-1, *[1] * (unused.dim() - 1)) if unused.dim() > 1 else unused
        by_output = _swap(unused, self.convolution_groups)
        emptied = by_output.flatten(1).all(1).view(-1, *[1] * (unused.dim() - 1))
        return _swap(emptied.expand_as(by_output), self.convolution_groups)

    def group_sizes(self) -> Tensor:
        """Return the number of weights in each group, broadcastable to the shape of the magnitudes."""
        return self.groups.sizes(self._oriented(self.w))

    def removes_whole(self, side: Literal["output", "input"]) -> bool:
        """Return whether a group contains all weights of an output of the layer, or all that read an input."""
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
        """Yield corresponding views that cover the tensors; the tensors themselves if their memory orders differ."""
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


class Layers(list[Layer]):
    """All layers of a method, in one list.

    >>> layers = Layers([Layer("a", torch.ones(2, requires_grad=True), param_group=0), Layer("b", torch.ones(2))])
    >>> [layer.name for layer in layers.attached]
    ['a']
    """

    @property
    def attached(self) -> list[Layer]:
        """The layers that an optimizer trains."""
        return [layer for layer in self if layer.attached]

    @property
    def active(self) -> list[Layer]:
        """The layers that a target counts: attached, not frozen, and once any has had a gradient, only such layers."""
        free = [layer for layer in self.attached if layer.parameter.requires_grad]
        return [layer for layer in free if layer.trained] or free

    @property
    def memory(self) -> dict[str, dict[str, Tensor]]:
        """What a method keeps between steps, by kind and by layer name."""
        kinds = dict.fromkeys(kind for layer in self for kind in layer.memory)
        return {kind: {layer.name: layer.memory[kind] for layer in self if kind in layer.memory} for kind in kinds}

    def require_types(self) -> None:
        """Raise if parameters have changed their type since they were attached, for example by ``model.half()``."""
        for layer in self.attached:
            if layer.dtype is not None and layer.parameter.dtype != layer.dtype:
                was, now = (str(each).removeprefix("torch.") for each in (layer.dtype, layer.parameter.dtype))
                raise RuntimeError(
                    f"{layer.name!r} was {was} when the method was attached but is {now} now; convert the model back,"
                    " or convert it before attaching. For speed, use torch.autocast and convert the finalized network"
                )


def require_finite(layer: Layer) -> None:
    """Raise if a layer contains NaN or infinity."""
    if not torch.isfinite(layer.w.detach().abs().max()):
        raise RuntimeError(
            f"the weights of {layer.name!r} are not finite: the training has diverged; return to the last good"
            " checkpoint and lower the learning rate"
        )


def require_no_overshoot(layer: Layer, lr: float) -> None:
    """Raise if one step of the pull would move w past u."""
    if layer.pull(lr) >= 1:
        raise ValueError(
            f"learning rate × β must be < 1 but is {lr:.4g} × {layer.beta:.4g} = {layer.pull(lr):.4g} for"
            f" {layer.name!r}: the pull would move the weights past their sparse copy; lower the learning rate or β"
            " (ρ in ADMM)"
        )
