"""A sparsified tensor with its options and state, and the list of all such tensors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from rvsm.groups import Channel, Element, Filter, Grouping
from rvsm.penalties import Grouped, Penalty
from rvsm.splitting.division import Division, divide
from rvsm.splitting.ranks import ALONE, Ranks
from rvsm.splitting.shards import Shard, local, local_gradient, shard_of, whole


@dataclass(eq=False)
class Coupling:
    """Groups that have parts in several layers, or on several processes.

    Attributes:
        count: the number of groups that several layers share; 0 if they have parts on several processes only.
        magnitudes: the magnitudes of the whole groups when last measured. The parts are moved one after the other by
            these values, so that moving one part does not affect the others.

    """

    count: int = 0
    magnitudes: Tensor | None = None


# Elementwise operations process the weights in blocks that stay in the cache between two kernels.
_BLOCK = 1 << 18


@dataclass
class Layer:
    """One sparsified tensor.

    Between two steps, a method may let the network compute with weights other than w, as RVSM does when it takes the
    gradient at v. Then `parameter` holds v, and w is kept beside it. Otherwise the parameter is w.

    If the parameter is divided among processes, `w`, `gradient`, the memory, and all tensors that methods take and
    return are the parts of this process. Numbers and shapes are those of the whole.

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
        parts_of: the index of the shared group to which each group of the whole tensor belongs.

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
    _crossing: Coupling = field(default_factory=Coupling, init=False, repr=False)  # groups with parts on other ranks
    _shard: tuple[Tensor, Shard | None] | None = field(default=None, init=False, repr=False)  # with the parameter

    def at(self, w: Tensor) -> "Layer":
        """Return this layer with other weights."""
        other = replace(self)
        other._kept, other._away = w, True
        return other

    @property
    def w(self) -> Tensor:
        """The weights: the parameter, unless that holds v."""
        return self._kept if self._away and self._kept is not None else self.local

    @property
    def local(self) -> Tensor:
        """The part of the parameter on this process: all of it, unless it is divided among processes."""
        return local(self.parameter)

    @property
    def gradient(self) -> Tensor | None:
        """The gradient, if there is one."""
        return local_gradient(self.parameter)

    @property
    def shard(self) -> Shard | None:
        """Which part of the parameter is on this process; None for all of it."""
        if self._shard is None or self._shard[0] is not self.parameter:
            self._shard = self.parameter, shard_of(self.parameter)
        return self._shard[1]

    @property
    def ranks(self) -> Ranks:
        """The processes among which the weights are divided."""
        return ALONE if self.shard is None else self.shard.ranks

    @property
    def division(self) -> Division | None:
        """Which groups have weights here; None if the tensor is whole, or if each weight is a group."""
        if self.elementwise or (shard := self.shard) is None:
            return None
        return divide(
            self.groups,
            shard.shape,
            dim=shard.dim,
            rank=shard.ranks.rank,
            ranks=shard.ranks.size,
            convolution_groups=self.convolution_groups,
            transposed=self.transposed,
        )

    def whole(self, part: Tensor) -> Tensor:
        """Return a tensor of which this is the part of this process, to be saved."""
        return whole(part, self.parameter)

    def part_of(self, saved: Tensor) -> Tensor:
        """Return this process's part of a tensor, which is saved, whole, or already the part."""
        part, shape = local(saved), self.local.shape
        if part.shape != shape and self.shard is not None and part.shape == self.shard.shape:
            return self.shard.of(part)
        if part.shape != shape:
            raise ValueError(
                f"expected the part of {self.name!r} on this process, of shape {list(shape)}, but got"
                f" {list(part.shape)}; load states for another number of processes with torch.distributed.checkpoint"
            )
        return part

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
        self._kept = None if w is None else torch.empty_like(self.local, requires_grad=False).copy_(self.part_of(w))

    def remember(self, memory: Mapping[str, Tensor]) -> None:
        """Keep copies of the tensors of a method, with the type and on the device of the parameter."""
        self.memory = {kind: torch.empty_like(self.local).copy_(self.part_of(v)) for kind, v in memory.items()}

    def v(self, w: Tensor, alpha: float) -> Tensor:
        """Return v = u + α(w − u) at w, or at one of its blocks."""
        return torch.lerp(self.prox(w), w, alpha)

    def set_out(self, alpha: float) -> None:
        """Put v into the parameter, and keep w beside it."""
        if self._kept is None:
            self._kept = torch.empty_like(self.local, requires_grad=False)
        self._away = True  # first: after an interrupt, `look_back` finds w in the parameter
        for v, w in self.blocks(self.local.detach(), self._kept):
            w.copy_(v)
            v.copy_(self.v(w, alpha))

    def look_back(self, alpha: float) -> None:
        """Take values that other code has written into the parameter since it got v as the new w.

        Examples are a loaded checkpoint, a clamp or a swapped average. Rounding differences do not count: v may have
        been computed on another machine, before a checkpoint was loaded.
        """
        if self._away and self._kept is not None and self._kept.dtype == self.parameter.dtype:  # else v was converted
            for found, w in self.blocks(self.local.detach(), self._kept):
                if not torch.equal(v := self.v(w, alpha), found):
                    w.copy_(torch.where(torch.isclose(found, v, rtol=1e-5, atol=0.0), w, found))

    def come_back(self, alpha: float) -> None:
        """Put w back into the parameter; a parameter that has been frozen meanwhile keeps its values."""
        if not self.parameter.requires_grad:
            self.away = None
        self.look_back(alpha)
        if self._away and self._kept is not None:
            self.local.detach().copy_(self._kept)
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
        oriented = self._oriented(w)
        return self._restored(grouped.prox(oriented, step, self._of_whole_groups(oriented)))

    def blocks(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield corresponding views that cover the tensors and fit in the cache.

        They are the tensors themselves if the weights are grouped, or if the memory orders of the tensors differ.
        """
        alike = self.elementwise and len({tensor.stride() for tensor in tensors}) == 1
        flat = [_flat(tensor) for tensor in tensors] if alike else [None]
        if any(view is None for view in flat):
            yield tensors
        else:
            yield from zip(*(torch.split(view, _BLOCK) for view in flat if view is not None), strict=True)

    def magnitudes(self, w: Tensor) -> Tensor:
        """Return the magnitude of each group of ``w``, of its part here if it has others elsewhere."""
        return self.groups.magnitudes(self._oriented(w))

    def norms(self, w: Tensor) -> Tensor:
        """Return the norm of each group of ``w``, of its part here if it has others elsewhere."""
        return self.groups.norms(self._oriented(w))

    @property
    def joint(self) -> Coupling | None:
        """The groups that have parts elsewhere: in other layers, or on other processes."""
        crosses = self.coupling is None and self.division is not None and self.division.shared
        return self._crossing if crosses else self.coupling

    @property
    def parts_here(self) -> Tensor:
        """The index of the shared group to which each group with weights here belongs, if layers share groups."""
        assert self.parts_of is not None
        if (division := self.division) is None or division.dim != 0:
            return self.parts_of
        return self.parts_of[division.begin : division.end]

    def with_joint(self, values: Tensor, joint: Tensor) -> Tensor:
        """Return the values of the groups here, given those of the joint groups, which replace the others."""
        if self.parts_of is not None:
            return joint[self.parts_here].view(-1, *[1] * (self.parameter.dim() - 1))
        return values if self.division is None else self.division.with_shared(values, joint)

    def _of_whole_groups(self, oriented: Tensor) -> Tensor | None:
        """Return the magnitudes of whole groups, for each group here; None if no group has parts elsewhere."""
        joint = self.joint
        if joint is None or joint.magnitudes is None:
            return None
        return self.with_joint(self.groups.magnitudes(oriented), joint.magnitudes)

    @property
    def outputs(self) -> int:
        """The number of outputs: channels or features."""
        return self.parameter.shape[1] * self.convolution_groups if self.transposed else self.parameter.shape[0]

    def emptied_outputs(self, unused: Tensor) -> Tensor:
        """Return which weights belong to an output all of whose weights are ``unused``, in a shape that broadcasts."""
        if unused.dim() < 2:
            return unused
        if self.transposed or (self.shard is not None and self.shard.dim != 0):
            by_output = replace(self, groups=Filter(), coupling=None, parts_of=None)
            return by_output.spread(by_output.counts(~unused) == 0)
        smallest = unused.view(torch.uint8).flatten(1).amin(1)  # vector code, where all() of booleans has none
        return smallest.bool().view(-1, *[1] * (unused.dim() - 1))

    def counts(self, chosen: Tensor) -> Tensor:
        """Return how many weights of each group are chosen, on all processes."""
        numbers = self.norms(chosen.float()).square().round()
        if (division := self.division) is None or not division.shared:
            return numbers
        return division.with_shared(numbers, self.ranks.sum_(division.to_shared(numbers)))

    def group_sizes(self) -> Tensor:
        """Return the number of weights in each group, broadcastable to the magnitudes of all groups of the tensor."""
        return self.groups.sizes(self._frame())

    def removes_whole(self, side: Literal["output", "input"]) -> bool:
        """Return whether a group contains all weights of an output of the layer, or all that read an input."""
        w = self._frame()
        if w.dim() < 2:
            return False
        magnitudes = self.groups.magnitudes(w)
        # Slices are expanded without memory; for blocks, this is a temporary index of the size of the whole tensor.
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
        if (division := self.division) is None:
            return self._reordered(w, self.convolution_groups)
        return division.aligned(self._reordered(division.completed(w), division.convolution_groups))

    def _restored(self, w: Tensor) -> Tensor:
        """Undo `_oriented`."""
        if self.elementwise:
            return w
        if (division := self.division) is None:
            return self._ordered_back(w, self.convolution_groups)
        return division.uncompleted(self._ordered_back(division.unaligned(w), division.convolution_groups))

    def _reordered(self, w: Tensor, convolution_groups: int) -> Tensor:
        w = _swap(w, convolution_groups) if self.transposed else w
        if self._by_input:
            # [out, in/g] holds the input channels of each group in turn; [out/g, in] has one column for each of them.
            w = _split(w, 0, convolution_groups).transpose(0, 1).flatten(1, 2)
        return w

    def _ordered_back(self, w: Tensor, convolution_groups: int) -> Tensor:
        if self._by_input:
            w = _split(w, 1, convolution_groups).transpose(0, 1).flatten(0, 1)
        return _swap(w, convolution_groups) if self.transposed else w

    def _frame(self) -> Tensor:
        """Return a tensor of the shape of the whole weight in the order [out, in, *kernel], without its memory."""
        w = torch.zeros((), device=self.local.device).expand(self.parameter.shape)
        return w if self.elementwise else self._reordered(w, self.convolution_groups)

    @property
    def _by_input(self) -> bool:
        return self.convolution_groups > 1 and isinstance(self.groups, Channel)


def _swap(w: Tensor, groups: int) -> Tensor:
    """Change a transposed convolution's [in, out/g, *kernel] into a convolution's [out, in/g, *kernel], or back."""
    return _split(w, 0, groups).transpose(1, 2).flatten(0, 1)


def _split(w: Tensor, dim: int, groups: int) -> Tensor:
    """Split a dimension into groups of the same length, which can be zero."""
    return w.reshape(*w.shape[:dim], groups, w.shape[dim] // groups, *w.shape[dim + 1 :])


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


def ranks_of(layers: Iterable[Layer]) -> Ranks:
    """Return the processes among which layers are divided; some of them may be whole on each process."""
    return next((layer.ranks for layer in layers if layer.ranks is not ALONE), ALONE)


def require_finite(*layers: Layer) -> None:
    """Raise, on all processes alike, if a layer contains NaN or infinity."""
    damaged = [bool(w.numel() and not torch.isfinite(w.abs().max())) for w in (layer.w.detach() for layer in layers)]
    for layer, found in zip(layers, on_any(layers, damaged), strict=True):
        if found:
            raise RuntimeError(
                f"the weights of {layer.name!r} are not finite: the training has diverged; return to the last good"
                " checkpoint and lower the learning rate"
            )


def totals(layers: Sequence[Layer], numbers: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the sums of the numbers of each layer over the processes among which it is divided."""
    summed = [list(row) for row in numbers]
    for ranks in dict.fromkeys(layer.ranks for layer in layers if layer.ranks is not ALONE):
        divided = [i for i, layer in enumerate(layers) if layer.ranks is ranks]
        device = layers[divided[0]].local.device
        found = ranks.sum_(torch.tensor([summed[i] for i in divided], dtype=torch.float64, device=device)).tolist()
        for i, row in zip(divided, found, strict=True):
            summed[i] = row
    return summed


def on_any(layers: Sequence[Layer], found: Sequence[bool]) -> list[bool]:
    """Return what is true on at least one of the processes among which layers are divided."""
    if (ranks := ranks_of(layers)) is ALONE:
        return list(found)
    numbers = torch.tensor(found, dtype=torch.int32, device=layers[0].local.device)
    return [number > 0 for number in ranks.max_(numbers).tolist()]


def require_no_overshoot(layer: Layer, lr: float) -> None:
    """Raise if one step of the pull would move w past u."""
    if layer.pull(lr) >= 1:
        raise ValueError(
            f"learning rate × β must be < 1 but is {lr:.4g} × {layer.beta:.4g} = {layer.pull(lr):.4g} for"
            f" {layer.name!r}: the pull would move the weights past their sparse copy; lower the learning rate or β"
            " (ρ in ADMM)"
        )
