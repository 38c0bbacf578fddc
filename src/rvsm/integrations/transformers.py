"""A callback for the Trainer of Transformers."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle
from transformers.trainer import Trainer
from transformers.trainer_callback import DefaultFlowCallback, TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

from rvsm.integrations.sparse_training import SparseTraining, missing_state
from rvsm.splitting.hooks import innermost

_KEY = "rvsm"


class TransformersCallback(SparseTraining, TrainerCallback):
    """Makes a model sparse while the Trainer of Transformers trains it.

    The optimizer and the number of steps are the trainer's own, including accumulation and mixed precision. Evaluation
    during training sees u, and at the end u is written into the model. Checkpoints store the method's state with the
    optimizer's, in ``optimizer.pt``, because this is the only part that a callback gets back. They can therefore be
    moved and still resume. The fraction of zeros, the gap ‖w − u‖ and λ are logged as ``rvsm/zeros``, ``rvsm/gap`` and
    ``rvsm/lambda`` with everything else.

    Args:
        sparsity: the final fraction of zeros; None for a ``penalty`` with its λ.
        method: "rvsm", or the name of another method, see `rvsm.splitting.methods`.
        budget: further options of the target, such as {"scope": "layer"}; see `rvsm.Budget`.
        steps: the number of optimizer steps; by default the trainer's own.
        recalibrate: batches for batch norm, at each evaluation and at the end; see `rvsm.recalibrate`.
        options: all other arguments of the method, such as ``exclude=["classifier.*"]``.

    Attributes:
        sparsifier: the method, from the beginning of ``train`` on.

    Example:
        trainer = Trainer(model, args, train_dataset=data)
        TransformersCallback(sparsity=0.9, exclude=["classifier.*"]).add_to(trainer)
        trainer.train()

    """

    _handles: Sequence[RemovableHandle] = ()
    _evaluating = False

    def add_to(self, trainer: Trainer) -> Self:
        """Add this callback to a trainer, before those that report to loggers.

        A trainer appends callbacks passed as ``callbacks=[...]``. That works, too, but TensorBoard and other loggers
        then receive their values before this callback can add any.
        """
        callbacks = trainer.callback_handler.callbacks
        flow = [i for i, callback in enumerate(callbacks) if isinstance(callback, DefaultFlowCallback)]
        callbacks.insert(flow[0] + 1 if flow else 0, self)
        return self

    # The training

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: Any, *, model: nn.Module, optimizer: Optimizer,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        """Attach the method to the optimizer, with the state from a checkpoint, if any."""
        if args.load_best_model_at_end:
            raise ValueError(
                "load_best_model_at_end=True would restore weights from before the zeros were fixed, which often score"
                " best but are not sparse; omit it"
            )
        self._remove_handles()
        inner = innermost(optimizer)
        saved: Mapping[str, Any] | None = inner.param_groups[0].pop(_KEY, None)  # from a loaded checkpoint
        if state.global_step > 0 and saved is None:
            raise missing_state(f"the checkpoint of step {state.global_step}")
        steps = state.max_steps if self._steps is None else self._steps
        self._begin(model, inner, steps=steps, saved=saved)
        self._handles = (
            inner.register_state_dict_post_hook(self._put_in),
            model.register_forward_pre_hook(self._before_forward),
        )

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """Make sure that the model holds its training weights, even if an evaluation failed."""
        self._end_evaluation()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Write u into the model permanently."""
        self._end_evaluation()
        self._remove_handles()
        self._finish()

    def on_log(self, args: Any, state: TrainerState, control: Any, *, logs: dict[str, float], **kwargs: Any) -> None:
        """Add the sparsity metrics, for later loggers and for the history."""
        if self._handles:
            measured = self._metrics()
            logs.update(measured)
            state.log_history[-1].update(measured)

    # Evaluation: the trainer announces it, begins with a forward pass, and may go through several data sets.

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Note whether an evaluation is due."""
        self._evaluating = control.should_evaluate

    on_epoch_end = on_step_end

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Restore the training weights, since a checkpoint may follow."""
        self._hide()

    def _before_forward(self, model: nn.Module, inputs: Any) -> None:
        if self._evaluating and not model.training:
            self._show()

    def _end_evaluation(self) -> None:
        self._evaluating = False
        self._hide()

    # Checkpoints

    def _put_in(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        """Add the method's state to the options of a parameter group, which, unlike other entries, are restored."""
        assert self.sparsifier is not None
        state_dict["param_groups"][0][_KEY] = self.sparsifier.state_dict()

    def _remove_handles(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = ()
