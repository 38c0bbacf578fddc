"""The class that users work with: everything in sparse training except the algorithm."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.groups import Coupled
from rvsm.metrics import Statistics
from rvsm.splitting import state
from rvsm.splitting.algorithm import Algorithm
from rvsm.splitting.attachment import Attachment
from rvsm.splitting.budget import Budget, Phase
from rvsm.splitting.coupled import coupled
from rvsm.splitting.ends import without_ends
from rvsm.splitting.hooks import gradient_scale
from rvsm.splitting.layers import Layer, on_any, ranks_of, require_finite, require_no_overshoot
from rvsm.splitting.lending import Output, output_of, write, written
from rvsm.splitting.naming import Named, look_up, select, warn_of_untouched
from rvsm.splitting.notices import warn
from rvsm.splitting.options import count_multiplications, give_options
from rvsm.splitting.portable import Portable
from rvsm.splitting.profiling import require_fitting, with_profile
from rvsm.splitting.ranks import ALONE
from rvsm.splitting.recalibrate import Batches, warn_if_stale
from rvsm.splitting.shards import drop_gathered
from rvsm.splitting.summary import describe, measure
from rvsm.splitting.units import measure_couplings
from rvsm.splitting.weights import unwrap
from rvsm.splitting.zeros import FixedZeros, reservations


class Method(Algorithm):
    """A sparsifier of a model's weights, attached to the optimizer that trains them.

    It implements everything that does not depend on the `Algorithm`: the sequence of a step, the target sparsity, fixed
    zeros, evaluation, finalizing and the state.
    """

    def __post_init__(self) -> None:
        self._network = unwrap(self.model) if isinstance(self.model, nn.Module) else None
        unwanted = self.exclude if self.exclude is None or isinstance(self.exclude, str) else list(self.exclude)
        layers = select(self.model, self.include, unwanted)
        if self._network is not None and self.include is None:
            warn_of_untouched(self._network, layers, unwanted or ())
        give_options(layers, self.layer_options(), self.overrides, named=self.budget is not None)
        arrange = coupled if any(isinstance(layer.groups, Coupled) for layer in layers) else without_ends
        self.layers = arrange(layers, self._network, self.example_input)
        for layer in self.layers:
            layer.group_sizes()  # raises if the shape does not fit the grouping
            if self.budget is not None:
                layer.penalty = None  # until the first evaluation of the weights
        if self.budget is not None and self.budget.by == "flops":
            count_multiplications(self.layers, self._network, self.example_input)
        self._measures = self.budget is not None and self.budget.by == "time" and self.budget.profile is None
        if self.budget is not None and self.budget.by == "time":
            self.budget = with_profile(self.budget, self.layers, self._network, self.example_input)
        self.example_input = None  # a batch may be large, and is no longer needed
        self._zeros = FixedZeros(self.layers)
        self._attachment: Attachment | None = None  # the last one, which may have been removed
        self._finalized = False
        self._lent = False  # whether the model holds the sparse copy during a with block

    # The optimizer

    def attach(self, optimizer: Optimizer) -> Self:
        """Act at each step of ``optimizer`` from now on; schedulers and the training loop need no change.

        No weight changes; only zeros that are already fixed are held again. If the optimizer wraps another (as in
        Accelerate or SAM), the method follows the steps of the inner one.
        """
        last = self._attachment
        if last is not None and last.is_on:
            raise RuntimeError("already attached to an optimizer; call detach() first")
        self._attachment = Attachment(self, optimizer, holds_zeros=bool(self._zeros))
        for layer in self.layers.attached:  # a loaded state may differ from the model's current type and device
            layer.remember(layer.memory)
            layer.away = layer.away
        measure_couplings(self.layers, self.point)
        self._zeros.resume(self._attachment.optimizer)
        if last is not None and last.optimizer is not self._attachment.optimizer:
            for layer in self.layers:
                if layer.rate is not None:
                    self.beta_changed(layer, layer.change_beta(None))  # other learning rates need another β
        return self

    def detach(self) -> None:
        """Stop acting at the optimizer's steps; u can still be evaluated and finalized, and held zeros stay.

        If the model held v, it now holds w.
        """
        self._require_not_lent("detach")
        drop_gathered(self._network)
        for layer in self.layers:
            layer.come_back(self.alpha)
        if self._attachment is not None:
            self._attachment.remove()

    def release(self) -> None:
        """Detach, and release the zeros held by healing or finalizing, so that they can become non-zero again.

        The method can be attached again: a penalty with its λ acts as before, and a budget heals again.
        """
        self.detach()
        self._zeros.free()
        self._finalized = False
        if self.budget is None:
            for layer in self.layers:
                layer.penalty = layer.template

    def optimizer_options(self, layer: Layer) -> Mapping[str, Any]:
        """Return the optimizer's current options for a layer, such as the learning rate; empty if it is not trained."""
        return {} if self._attachment is None else self._attachment.options(layer)

    def awaits_steps(self) -> bool:
        """Return whether the method is not finalized."""
        return not self._finalized

    # The step

    @property
    def phase(self) -> Phase | None:
        """The budget's phase at the next step; None without a budget."""
        return None if self.budget is None else self.budget.phase(self.step)

    def before(self, optimizer: Optimizer) -> None:
        """Act when the gradients are available: follow the budget, then let the algorithm act on w."""
        if self._finalized:
            return
        self._require_not_lent("step the optimizer")
        self.layers.require_types()
        for layer in self.layers:
            layer.come_back(self.alpha)
        if not self._zeros:
            measure_couplings(self.layers, self.point)
        self.gradient_scale = gradient_scale(optimizer)
        moving = self._moving()
        for layer, lr in moving:
            layer.trained = True
            if not self._zeros:
                self.prepare(layer, lr)
        for layer, lr in moving:
            if (beta := layer.beta_at(lr)) != layer.beta:
                self.beta_changed(layer, layer.change_beta(beta))
        if self.budget is not None:
            self._follow(self.budget, optimizer)
        if not self._zeros:
            for layer, lr in moving:
                require_no_overshoot(layer, lr)
            for layer, lr in moving:
                self.before_step(layer, lr)

    def after(self, optimizer: Optimizer) -> None:
        """Act when the step is done: let the algorithm act on w, and put v into the model if it differs from w."""
        if self._finalized:
            return
        self.step += 1
        if not self._zeros:
            measure_couplings(self.layers, self.point)
        due = self.fixed_sparsity(self.step)
        if self._zeros:
            if due is None:
                self._zeros.free()  # now, since the next gradient belongs to free weights
        elif due is not None and self.budget is None:
            self._zeros.fix({layer.name: self.sparse(layer) == 0 for layer in self.layers.active}, optimizer)
        else:
            for layer, lr in self._moving():
                self.after_step(layer, lr)
            if self.alpha < 1:
                for layer in self.layers.active:
                    if layer.penalty is not None:
                        layer.set_out(self.alpha)
        if self.budget is not None and self.budget.is_outrun(self.step):
            warn(
                f"the optimizer has made {self.step} steps but the budget is for {self.budget.steps}, so the training"
                f" stays in the last phase, {self.phase!r}; give the budget the number of steps of the whole training"
                " (epochs × batches per epoch), or call finalize() when they are done"
            )

    def _moving(self) -> list[tuple[Layer, float]]:
        """Return the layers that have a gradient, with their learning rates; optimizers also skip the others."""
        moving = [layer for layer in self.layers.attached if layer.parameter.grad is not None]
        return [(layer, float(self.optimizer_options(layer).get("lr", 0.0))) for layer in moving]

    def _follow(self, budget: Budget, optimizer: Optimizer) -> None:
        """Fix the zeros that are due, again whenever their number rises; or set the threshold of each layer."""
        due = self.fixed_sparsity(self.step)
        if due is not None:
            rises = budget.updates_before(self.step) and due != self.fixed_sparsity(self.step - 1)
            if not self._zeros or rises or self.step == budget.ramp_steps:
                self._zeros.fix(budget.zeros(self.layers.active, due), optimizer)
        elif not self._zeros and budget.updates_before(self.step, on_hold=self.alpha < 1):
            budget.set_thresholds(self.layers.active, budget.target(self.step))

    @torch.no_grad()
    def differs(self, parameter: Tensor) -> bool:
        """Return whether the model has weights that are not those of the sparse copy, and will not be."""
        if self._attachment is None or not self._attachment.is_on or self._finalized or self._lent or self._zeros:
            return False
        layers = [layer for layer in self.layers.attached if layer.parameter is parameter]
        return any(not torch.equal(self.sparse(layer), layer.local.detach()) for layer in layers)

    # The sparse copy

    @contextmanager
    def sparse_weights(self, *, output: Output = "u", recalibrate: Batches | None = None) -> Iterator[None]:
        """Put the sparse copy into the model for the duration of a ``with`` block.

        On exit, also after an exception, the weights, all buffers, all modes and the random states are restored bit for
        bit, and training continues as if nothing had been evaluated. During the ramp of a budget, the copy has the
        sparsity that the ramp has reached.

        Args:
            output: "u" for the sparse copy, "masked" for w on the support of u, which has no shrinkage.
            recalibrate: batches to estimate the batch-norm statistics of the sparse network from.

        """
        self._require_not_lent("enter it again")
        layers = self._checked()
        copies = {layer.name: output_of(layer, self._copy(layer), output) for layer in layers}
        with written(layers, copies, self._network, recalibrate):
            self._lent = True
            try:
                yield
            finally:
                self._lent = False

    def finalize(self, *, output: Output = "u", recalibrate: Batches | None = None) -> None:
        """Write the sparse copy into the model permanently, and keep its zeros at zero.

        With a budget the number of zeros is exact. The pull ends. Training can continue with this optimizer or a new
        one, and the zeros stay zero.

        Args:
            output: "u" for the sparse copy, "masked" for w on the support of u, which has no shrinkage.
            recalibrate: batches to estimate the batch-norm statistics of the sparse network from.

        """
        if self._finalized:
            raise RuntimeError("already finalized: the model holds its zeros; continue training it, or save it")
        self._require_not_lent("finalize")
        layers = self._checked()
        penalties = [layer.penalty for layer in layers]
        concerns = list(reservations(self.layers, self._zeros, self.budget, self.step))
        try:
            copies = self._final_copies(output)
            changed = any(on_any(layers, [not torch.equal(layer.local, copies[layer.name]) for layer in layers]))
            given = self.model if isinstance(self.model, nn.Module) else None
            write(layers, copies, given, recalibrate)  # the model as given: if wrapped, its ranks share statistics
        except BaseException:
            for layer, penalty in zip(layers, penalties, strict=True):
                layer.penalty = penalty
            raise
        zeros = {name: u == 0 for name, u in copies.items()}
        self._zeros.fix(zeros, None if self._attachment is None else self._attachment.optimizer)
        self._finalized = True
        for sentence in concerns:
            warn(sentence)
        if changed and recalibrate is None:
            warn_if_stale(self._network)

    def apply_zeros(self, model: nn.Module | Named) -> None:
        """Write the fixed zeros into another model with the same parameter names: an average or a copy.

        An average that began before the zeros were fixed has none of its own; once they are written, averaging keeps
        them. A model that continues training also needs `rvsm.keep_zeros`.
        """
        self._zeros.apply_to(model)

    @torch.no_grad()
    def statistics(self) -> Statistics:
        """Return the sparsity, gap, λ and threshold of each layer, for the sparse copy at the current w."""
        self._require_not_lent("measure it")
        everything = None if self._network is None else list(self._network.parameters())
        return measure(self._checked(), self._copy, self.threshold, everything, self.budget)

    def _final_copies(self, output: Output) -> dict[str, Tensor]:
        """Return the copies that finalize writes; with a budget, the number of zeros meets the target exactly."""
        layers, budget = self.layers.active, self.budget
        zeros: dict[str, Tensor] = {}
        if budget is not None and not (self._zeros and budget.has_settled(self.step)):
            if not self._zeros:
                budget.set_thresholds(layers, budget.goal)
            ranked = [layer.at(self._zeros.applied(layer)) for layer in layers] if self._zeros else layers
            zeros = budget.zeros(ranked, budget.goal)
        copies = {layer.name: output_of(layer, self._copy(layer), output) for layer in layers}
        return {name: copy.masked_fill(zeros[name], 0) if name in zeros else copy for name, copy in copies.items()}

    @torch.no_grad()
    def _copy(self, layer: Layer) -> Tensor:
        """Return u; once zeros are fixed, this is w with these zeros."""
        return self._zeros.applied(layer) if self._zeros else self.sparse(layer)

    def _checked(self) -> list[Layer]:
        """Return the active layers with the model's current tensors, which are checked to be finite."""
        if not self.layers.attached:
            raise RuntimeError("not attached yet: call attach(optimizer) first")
        if not self._finalized:
            self.layers.require_types()
        tensors = look_up(self.model, self.layers)
        for layer in self.layers:
            layer.parameter = tensors[layer.name]
            layer.look_back(self.alpha)
        measure_couplings(self.layers, self.point)
        require_finite(*self.layers.active)
        return self.layers.active

    def _require_not_lent(self, action: str) -> None:
        if self._lent:
            raise RuntimeError(
                f"the model holds its sparse copy until the sparse_weights block ends; {action} after it"
            )

    # The state

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a new object needs to resume bit for bit: plain values and tensors, by name.

        It belongs to the model's own ``state_dict()`` at the same step, which holds v where this one holds w.
        """
        self._require_not_lent("save a checkpoint, which would contain u instead of w,")
        return {
            **state.of_layers(self.name, self.settings(), self.layers),
            "step": self.step,
            "finalized": self._finalized,
            "support": self._zeros.packed(),
            **({} if self.budget is None else state.of_profile(self.budget.times)),
        }

    def portable(self) -> Portable:
        """Return the state as an object that torch.distributed.checkpoint saves, and loads on any number of processes.

        Use it on both sides, also on a single process: ``dcp.save({"sparsifier": sparsifier.portable(), …})`` and
        ``dcp.load({"sparsifier": sparsifier.portable(), …})``.
        """
        return Portable(self)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Load the state of an object with the same method and model, before or after attaching."""
        self._require_not_lent("load a state")
        state.check(saved, self.name, self.settings(), self.layers, self.keeps)
        if self.budget is not None and self.budget.times is not None:
            times = state.profile_of(saved, None if self._measures else self.budget.times)
            if self._measures:
                require_fitting(times, self.layers, self.budget.times.inputs)
            self.budget = replace(self.budget, profile=times)
        state.restore(saved, self.layers)
        measure_couplings(self.layers, self.point)
        self.step, self._finalized = int(saved["step"]), bool(saved["finalized"])
        self._zeros.load(saved["support"], None if self._attachment is None else self._attachment.optimizer)

    def __repr__(self) -> str:
        at = f"at step {self.step}" + ("" if self.phase is None else f", phase {self.phase!r}")
        progress = "finalized" if self._finalized else at if self.layers.attached else "not attached"
        try:
            divided = ranks_of(self.layers) is not ALONE  # then counting would need all processes, and one may print
            statistics = None if divided else self.statistics()
        except (RuntimeError, ValueError):  # not attached yet, lent, or not finite: no zeros to report
            statistics = None
        return describe(type(self).__name__, self.layers, self.budget, progress, statistics)

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled, since its hooks belong to an optimizer; construct"
            " a new one for the copied model, and transfer the state with state_dict()"
        )
