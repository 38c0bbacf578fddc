"""A callback for the Trainer of Transformers."""

from collections.abc import Mapping
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle
from transformers.trainer import Trainer
from transformers.trainer_callback import DefaultFlowCallback, TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

from rvsm.integrations.recipe import Recipe
from rvsm.integrations.sparse_training import SparseTraining, missing_state
from rvsm.splitting import Method
from rvsm.splitting.hooks import innermost
from rvsm.splitting.recalibrate import Batches

_KEY = "rvsm"


class TransformersCallback(TrainerCallback):
    """Makes a model sparse while the Trainer of Transformers trains it.

    The optimizer and the number of steps are the trainer's own, including accumulation and mixed precision. Evaluation
    during training sees u, and at the end u is written into the model. Checkpoints store the method's state with the
    optimizer's, in ``optimizer.pt``, because this is the only part that a callback gets back. They can therefore be
    moved and still resume. The fraction of zeros, the gap ‖w − u‖ and λ are logged as ``rvsm/zeros``, ``rvsm/gap`` and
    ``rvsm/lambda`` with everything else.

    Args:
        sparsity: the final fraction of zeros; None for a ``penalty`` with its λ.
        method: "rvsm", or another method in `rvsm.splitting.METHODS`.
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

    def __init__(
        self,
        sparsity: float | None = None,
        *,
        method: str = "rvsm",
        budget: Mapping[str, Any] | None = None,
        steps: int | None = None,
        recalibrate: Batches | None = None,
        **options: Any,
    ) -> None:
        recipe = Recipe(method=method, sparsity=sparsity, budget=budget, options=options)
        self._training = SparseTraining(recipe, recalibrate)
        self._steps = steps
        self._handles: list[RemovableHandle] = []
        self._evaluating = False

    @property
    def sparsifier(self) -> Method | None:
        """The method, from the beginning of ``train`` on."""
        return self._training.sparsifier

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
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module,
        optimizer: Optimizer,
        **kwargs: Any,
    ) -> None:
        """Attach the method to the optimizer, with the state from a checkpoint, if any."""
        if args.load_best_model_at_end:
            raise ValueError(
                "load_best_model_at_end=True would restore weights from before the zeros were fixed, which often score"
                " best but are not sparse; omit it"
            )
        self._remove_handles()
        inner = innermost(optimizer)
        saved = _taken_out(inner)
        if state.global_step > 0 and saved is None:
            raise missing_state(f"the checkpoint of step {state.global_step}")
        steps = state.max_steps if self._steps is None else self._steps
        self._training.begin(model, inner, steps=steps, saved=saved)
        self._handles = [
            inner.register_state_dict_post_hook(self._put_in),
            model.register_forward_pre_hook(self._before_forward),
        ]

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Make sure that the model holds its training weights, even if an evaluation failed."""
        self._end_evaluation()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write u into the model permanently."""
        self._end_evaluation()
        self._remove_handles()
        self._training.finish()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        logs: dict[str, float],
        **kwargs: Any,
    ) -> None:
        """Add the sparsity metrics, for later loggers and for the history."""
        if self._handles:
            measured = self._training.metrics()
            logs.update(measured)
            state.log_history[-1].update(measured)

    # Evaluation: the trainer announces it, begins with a forward pass, and may go through several data sets.

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Note whether an evaluation is due."""
        self._evaluating = control.should_evaluate

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note whether an evaluation is due."""
        self._evaluating = control.should_evaluate

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Restore the training weights, since a checkpoint may follow."""
        self._training.hide()

    def _before_forward(self, model: nn.Module, inputs: Any) -> None:
        if self._evaluating and not model.training:
            self._training.show()

    def _end_evaluation(self) -> None:
        self._evaluating = False
        self._training.hide()

    # Checkpoints

    def _put_in(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        """Add the method's state to the options of a parameter group, which, unlike other entries, are restored."""
        assert self.sparsifier is not None
        state_dict["param_groups"][0][_KEY] = self.sparsifier.state_dict()

    def _remove_handles(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _taken_out(optimizer: Optimizer) -> Mapping[str, Any] | None:
    """Remove the state that a loaded checkpoint has put into the optimizer's options, and return it."""
    saved: Mapping[str, Any] | None = optimizer.param_groups[0].pop(_KEY, None)
    return saved
