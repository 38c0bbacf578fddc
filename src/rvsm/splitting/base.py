"""What all methods share: the course of a step, the sparse copy, the state."""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.groups import Coupled, Grouping
from rvsm.metrics import Statistics, multiplications
from rvsm.penalties import Penalty
from rvsm.splitting import state
from rvsm.splitting.attachment import Attachment
from rvsm.splitting.budget import Budget, Phase
from rvsm.splitting.coupled import coupled
from rvsm.splitting.describe import describe
from rvsm.splitting.ends import without_ends
from rvsm.splitting.exchange import write, written
from rvsm.splitting.hooks import gradient_scale
from rvsm.splitting.layers import Layer, require_finite
from rvsm.splitting.naming import Named, parameters_of
from rvsm.splitting.options import Overrides, as_groups, as_penalty, override
from rvsm.splitting.recalibrate import Batches, warn_if_stale
from rvsm.splitting.statistics import measure
from rvsm.splitting.support import Support, is_held, unpack
from rvsm.splitting.units import measure_couplings

Output = Literal["u", "masked"]


class Method(Attachment):
    """A sparsifier of a model's weights, attached to the optimizer that trains them.

    A method says what happens before and after an optimizer step, what its sparse copy u is, and where between w and u
    the gradient is taken; all the rest is here.

    Attributes:
        budget: the target sparsity, if there is one.
        step: the number of optimizer steps done so far.
        memory: what the method keeps between steps, tensors by kind and by the name of a layer.
        gradient_scale: the factor by which the present gradients are scaled.

    """

    def __init__(
        self,
        model: nn.Module | Named,
        *,
        penalty: Penalty | str | None = None,
        beta: float | None = None,
        groups: Grouping | str = "element",
        budget: Budget | None = None,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        overrides: Overrides | None = None,
        overridable: Sequence[str],
        example_input: Tensor | tuple[Any, ...] | None = None,
    ) -> None:
        super().__init__(model, include, exclude)
        self.budget = budget
        self.step = 0
        self.memory: dict[str, dict[str, Tensor]] = {}
        self.gradient_scale = 1.0
        self._finalized = False
        self._lent = False  # whether the model holds the sparse copy for the time of a block
        self._support: Support | None = None
        self._awaiting: dict[str, Tensor] | None = None  # a loaded support, packed, until there are weights to fix
        named = budget is not None
        for layer in self.layers:
            layer.penalty = None if penalty is None else as_penalty(penalty, named=named)
            layer.beta, layer.groups = beta, as_groups(groups)
        override(self.layers, {} if overrides is None else overrides, overridable, named=named)
        arrange = coupled if any(isinstance(layer.groups, Coupled) for layer in self.layers) else without_ends
        self.layers = arrange(self.layers, self._model, example_input)
        for layer in self.layers:
            layer.group_sizes()  # raises where the shape does not fit the grouping
            layer.template = layer.penalty
            if budget is not None:
                layer.penalty = None  # until the first look at the weights
        if budget is not None and budget.by == "flops":
            self._count_multiplications(example_input)

    # What a method is

    @abstractmethod
    def sparse(self, layer: Layer) -> Tensor:
        """Return the sparse copy u of a layer at its present w."""

    # The five that follow do nothing, or the usual thing, unless a method has something to do there.

    def prepare(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Get ready for a step, and raise if it cannot be done, before any weight moves."""

    def before_step(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Act on the layers that have a gradient, given the learning rate of each, before the optimizer's step."""

    def after_step(self, moving: Sequence[tuple[Layer, float]]) -> None:
        """Act on the same layers after the optimizer's step."""

    def prox_step(self, layer: Layer) -> float:
        """Return the step that this method passes to the proximal operator of a layer."""
        return 1.0

    @property
    def alpha(self) -> float:
        """Where the gradient of the next step is taken: at v = u + α(w − u). At 1 that is w."""
        return 1.0

    def settings(self) -> dict[str, str]:
        """Return the options that a saved state must share, beside those of each layer."""
        return {"budget": repr(self.budget)}

    def follow(self, budget: Budget) -> None:
        """Set each layer's λ when it is time to look at the weights; begin to heal when it is time for that."""
        if self._support is not None:
            return
        if budget.phase(self.step) == "heal":
            self.fix_support(budget.zeros(self.acting, budget.sparsity))
        elif budget.looks(self.step, on_hold=self.alpha < 1):
            self._set_thresholds(budget.cutoffs(self.acting, budget.target(self.step)))

    # The step

    def check(self, layers: Sequence[Layer]) -> None:
        """Raise if zeros of these layers are held by somebody else, or if the budget cannot be met."""
        for layer in layers:
            if self._support is None and is_held(layer.parameter):
                raise RuntimeError(
                    f"zeros of {layer.name!r} are held by an earlier method or by keep_zeros; before attaching another,"
                    " call release() on the method, remove() on what keep_zeros returned, or rvsm.release(model)"
                )
        if self.budget is not None:
            self.budget.check(layers)

    def begin(self, optimizer: Optimizer, *, another: bool) -> None:
        """Hold the zeros that there are, or that a loaded state has; no other weight changes."""
        if self._support is not None:
            self.fix_support({})  # in the present tensors, which may be others than those that it was fixed in
        for layer in self.held:  # a loaded state may be older than the model's present type and device
            for kept in self.memory.values():
                if layer.name in kept:
                    kept[layer.name] = torch.empty_like(layer.parameter).copy_(kept[layer.name])
            layer.away = layer.away
        measure_couplings(self.layers)
        self._fix_awaiting()

    def detach(self) -> None:
        """Stop acting on the optimizer; the sparse copy can still be evaluated and finalized, and held zeros stay.

        If the model held v, it holds w from now on.
        """
        self._require_not_lent("detach")
        self._come_back()
        super().detach()

    def release(self) -> None:
        """Detach, and let go of the zeros that healing or finalizing holds: they may grow again.

        The method may be attached again: a penalty with its λ acts as before, a budget begins anew to heal.
        """
        self.detach()
        self.free_support()
        self._awaiting = None
        self._finalized = False
        if self.budget is None:
            for layer in self.layers:
                layer.penalty = layer.template

    @property
    def phase(self) -> Phase | None:
        """The budget's phase in the next step; None without a budget."""
        return None if self.budget is None else self.budget.phase(self.step)

    def awaits_steps(self) -> bool:
        """Return whether the method is not finalized."""
        return not self._finalized

    def before(self, optimizer: Optimizer) -> None:
        """Follow the budget, then let the method act on w."""
        if self._finalized:
            return
        self._require_not_lent("step the optimizer")
        self.require_types()
        self._come_back()
        measure_couplings(self.layers)
        self.gradient_scale = gradient_scale(optimizer)
        moving = self.moving()
        for layer, _ in moving:
            layer.trained = True
        self.prepare(moving)
        if self.budget is not None:
            self.follow(self.budget)
        if self._support is None:
            self.before_step(moving)

    def after(self, optimizer: Optimizer) -> None:
        """Count the step, then let the method act on w; the next gradient is taken at v."""
        if self._finalized:
            return
        self.step += 1
        measure_couplings(self.layers)
        if self._support is None:
            self.after_step(self.moving())
        self._set_out()
        if self.budget is not None and self.budget.is_outrun(self.step):
            warnings.warn(
                f"the optimizer has made {self.step} steps but the budget is for {self.budget.steps}, and the training"
                f" stays in its last phase, {self.phase!r}; give the budget the number of steps of the whole training"
                " (epochs × batches in an epoch), or finalize() when they are done",
                stacklevel=4,
            )

    @torch.no_grad()
    def _set_out(self) -> None:
        """Put v into the model, where it is not w."""
        if self._support is None and not self._finalized and self.alpha < 1:
            for layer in self.acting:
                if layer.penalty is not None:
                    layer.set_out(partial(self._v, layer))

    @torch.no_grad()
    def _come_back(self) -> None:
        """Put w back into the model; what has been frozen meanwhile stays as it was frozen."""
        for layer in self.layers:
            if layer.parameter.requires_grad:
                layer.come_back(partial(self._v, layer))
            else:
                layer.away = None

    def _v(self, layer: Layer, w: Tensor) -> Tensor:
        """Return v = u + α(w − u) at w, or at one of its blocks."""
        return torch.lerp(layer.prox(w, self.prox_step(layer)), w, self.alpha)

    def _set_thresholds(self, thresholds: Sequence[float]) -> None:
        """Give each layer the λ of a threshold; a threshold of zero penalises nothing."""
        for layer, t in zip(self.acting, thresholds, strict=True):
            if layer.template is not None:
                layer.penalty = layer.template.with_threshold(t, self.prox_step(layer)) if t > 0 else None

    def fix_support(self, masks: Mapping[str, Tensor]) -> None:
        """Fix the support: the weights under these masks are zero from now on, and nothing is penalised any more.

        Zeros of layers that have no mask here, frozen ones perhaps, stay held if they were.
        """
        if self._support is not None:
            masks = {**self._support.masks, **masks}
            self._support.remove()
        fixed = [layer for layer in self.layers if layer.name in masks]
        self._support = Support((layer.name, layer.parameter, masks[layer.name]) for layer in fixed)
        if self._last_optimizer is not None and (optimizer := self._last_optimizer()) is not None:
            self._support.clear_momentum(optimizer)
        self.memory.clear()
        for layer in self.held:
            layer.penalty = layer.away = None

    def free_support(self) -> None:
        """Let the zeros go that are fixed, if there are any: they may grow again."""
        if self._support is not None:
            self._support.remove()
            self._support = None

    def apply_zeros(self, model: nn.Module | Named) -> None:
        """Write the zeros that are fixed into another model with the same names: an average, or a copy.

        An average that began before the zeros were fixed has none of its own; once it has these, averaging keeps
        them. A model that is to be trained on needs `rvsm.keep_zeros`, too.
        """
        if self._support is None:
            raise RuntimeError("no zeros are fixed yet; call apply_zeros in the phase 'heal', or after finalize()")
        self._support.apply_to(parameters_of(model))

    def _fix_awaiting(self) -> None:
        if self._awaiting is not None and self.held:
            held = [layer for layer in self.held if layer.name in self._awaiting]
            self.fix_support({layer.name: unpack(self._awaiting[layer.name], layer.parameter) for layer in held})
            self._awaiting = None

    # The sparse copy

    @contextmanager
    def sparse_weights(self, *, output: Output = "u", recalibrate: Batches | None = None) -> Iterator[None]:
        """Put the sparse copy into the model for the time of a ``with`` block.

        On leaving, also by an exception, the weights, all buffers, all modes and the random states come back bit for
        bit; training goes on as if nothing had been evaluated. During the ramp of a budget the copy is as sparse as the
        ramp has come.

        Args:
            output: "u" for the sparse copy, "masked" for w on the support of u, which has no shrinkage.
            recalibrate: batches to estimate the batch-norm statistics of the sparse network from.

        """
        self._require_not_lent("enter it again")
        layers = self._checked()
        copies = {layer.name: self._output(layer, output) for layer in layers}
        with written(layers, copies, self._model, recalibrate):
            self._lent = True
            try:
                yield
            finally:
                self._lent = False

    def finalize(self, *, output: Output = "u", recalibrate: Batches | None = None) -> None:
        """Write the sparse copy into the model for good, and keep its zeros at zero.

        With a budget the count of zeros is exact. The pull ends; training may go on, with this optimizer or a new one,
        and the zeros stay zero.

        Args:
            output: "u" for the sparse copy, "masked" for w on the support of u, which has no shrinkage.
            recalibrate: batches to estimate the batch-norm statistics of the sparse network from.

        """
        if self._finalized:
            raise RuntimeError("already finalized: the model holds its zeros; train it on, or save it")
        self._require_not_lent("finalize")
        layers = self._checked()
        penalties = [layer.penalty for layer in layers]
        reservations = list(self._reservations())
        try:
            copies = self._final_copies(output)
            changed = any(not torch.equal(layer.parameter, copies[layer.name]) for layer in layers)
            write(layers, copies, self._given, recalibrate)  # as it was given: in it, the ranks share statistics
        except BaseException:
            for layer, penalty in zip(layers, penalties, strict=True):
                layer.penalty = penalty
            raise
        self.fix_support({name: u == 0 for name, u in copies.items()})
        self._finalized = True
        for sentence in reservations:
            warnings.warn(sentence, stacklevel=2)
        if changed and recalibrate is None:
            warn_if_stale(self._model)

    def _reservations(self) -> Iterator[str]:
        """Say what of the network to be finalized is not as one might expect."""
        if self.budget is not None and self.step < self.budget.steps:
            yield (
                f"finalized at step {self.step} of {self.budget.steps}, in the phase {self.phase!r}: the sparsity is"
                " met, but the weights were not trained for it to the end; train on, or give the budget the real number"
                " of steps"
            )
        acting = [layer.name for layer in self.acting]
        if idle := [layer.name for layer in self.held if layer.name not in acting]:
            yield (
                f"{len(idle)} of the weights are frozen or never had a gradient; they stay as they are and do not"
                f" count: {', '.join(idle[:5])}"
            )
        fixed = self._support.masks if self._settled and self._support is not None else acting
        if late := [name for name in acting if name not in fixed]:
            yield (
                f"{len(late)} of the weights had their first gradient after the zeros were fixed, and stay dense:"
                f" {', '.join(late[:5])}"
            )
        on_support = [] if self._support is None else self.layers
        if grown := sum(int((layer.w != self._copy(layer)).sum()) for layer in on_support):
            yield (
                f"{grown} weights that should be zero were not, perhaps because a checkpoint or an average was"
                " loaded after the zeros were fixed; they are set to zero now, without healing; train on, or load"
                " the sparsifier's state_dict() that belongs to the weights"
            )

    def _final_copies(self, output: Output) -> dict[str, Tensor]:
        """Return what finalize writes; with a budget, at thresholds and with zeros that meet the target exactly."""
        layers = self.acting
        if self.budget is None or self._settled:
            return {layer.name: self._output(layer, output) for layer in layers}
        if self._support is None:
            self._set_thresholds(self.budget.cutoffs(layers, self.budget.sparsity))
            ranked = layers
        else:  # what is fixed already counts
            ranked = [layer.at(self._copy(layer)) for layer in layers]
        zeros = self.budget.zeros(ranked, self.budget.sparsity)
        return {layer.name: self._output(layer, output).masked_fill(zeros[layer.name], 0) for layer in layers}

    @property
    def _settled(self) -> bool:
        """Whether the zeros of the target are fixed, and the survivors have trained without the others since."""
        return self._support is not None and self.budget is not None and self.step > self.budget.ramp_steps

    @torch.no_grad()
    def statistics(self) -> Statistics:
        """Return sparsity, gap, λ and threshold of each layer, for the sparse copy at the present w."""
        self._require_not_lent("measure it")
        everything = None if self._model is None else list(self._model.parameters())
        return measure(self._checked(), self._copy, self.prox_step, everything)

    @torch.no_grad()
    def _copy(self, layer: Layer) -> Tensor:
        """Return u; once the support is fixed that is w on it, whoever has written into w since."""
        return self.sparse(layer) if self._support is None else self._support.applied(layer.name, layer.w.detach())

    def _output(self, layer: Layer, output: Output) -> Tensor:
        if output not in ("u", "masked"):
            raise ValueError(f"unknown output {output!r}; choose from u, masked")
        u = self._copy(layer)
        return u if output == "u" else layer.w.detach().masked_fill(u == 0, 0)

    def _checked(self) -> list[Layer]:
        """Return the layers to act on, with the model's present tensors, which are made sure to hold numbers."""
        if not self.held:
            raise RuntimeError("not attached yet: call attach(optimizer) first")
        if not self._finalized:
            self.require_types()
        tensors = self.look_up()
        for layer in self.layers:
            layer.parameter = tensors[layer.name]
            layer.look_back(partial(self._v, layer))
        measure_couplings(self.layers)
        for layer in self.acting:
            require_finite(layer)
        return self.acting

    def _require_not_lent(self, action: str) -> None:
        if self._lent:
            raise RuntimeError(
                f"the model holds its sparse copy until the sparse_weights block ends; {action} after it"
            )

    def __repr__(self) -> str:
        at = f"at step {self.step}" + ("" if self.phase is None else f", phase {self.phase!r}")
        state = "finalized" if self._finalized else at if self.held else "not attached"
        try:
            statistics = self.statistics()
        except (RuntimeError, ValueError):  # not attached yet, lent, or not finite: no zeros to tell
            statistics = None
        return describe(type(self).__name__, self.layers, self.budget, state, statistics)

    # The state

    def state_dict(self) -> dict[str, Any]:
        """Return all that a fresh object needs to go on bit for bit: plain values and tensors, by name.

        It belongs to the model's own ``state_dict()`` of the same moment, which holds v where this one holds w.
        """
        self._require_not_lent("save a checkpoint, which would hold u for w,")
        kept = {layer.name: layer.away for layer in self.layers if layer.away is not None}
        memory: dict[str, dict[str, Tensor]] = {**self.memory, **({"w": kept} if kept else {})}
        return {
            **state.header(self.name, self.settings(), self.layers),
            "step": self.step,
            "finalized": self._finalized,
            "support": dict(self._awaiting or {}) if self._support is None else self._support.packed(),
            "memory": {kind: {k: v.clone() for k, v in kept.items()} for kind, kept in memory.items()},
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take the state of an object of the same method and model, before or after attaching."""
        self._require_not_lent("load a state")
        state.check(saved, self.name, self.settings(), self.layers)
        state.restore(saved, self.layers)
        by_name = {layer.name: layer.parameter for layer in self.layers}
        self.step, self._finalized = int(saved["step"]), bool(saved["finalized"])
        self.memory = {
            kind: {name: torch.empty_like(by_name[name]).copy_(v) for name, v in kept.items()}
            for kind, kept in saved["memory"].items()
            if kind != "w"
        }
        for layer in self.layers:
            layer.away = saved["memory"].get("w", {}).get(layer.name)
        measure_couplings(self.layers)
        self.free_support()
        self._awaiting = dict(saved["support"]) or None
        self._fix_awaiting()

    def _count_multiplications(self, example_input: Tensor | tuple[Any, ...] | None) -> None:
        if self._model is None or example_input is None:
            raise ValueError(
                "a budget by flops needs the module and example_input=, a batch to count multiplications on"
            )
        counts = multiplications(self._model, example_input)
        for layer in self.layers:
            if layer.coupling is not None and layer.parameter.dim() == 1:
                layer.multiplications = 0.0  # biases and norms, which follow their channel
                continue
            if not counts.get(layer.name):
                raise ValueError(
                    f"the forward pass over example_input does not use {layer.name!r} in a layer whose multiplications"
                    " can be counted; exclude it, or use by='weights'"
                )
            layer.multiplications = counts[layer.name]
