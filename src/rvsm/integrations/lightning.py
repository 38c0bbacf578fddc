"""A callback for Lightning's Trainer."""

import warnings
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from rvsm.integrations.sparse_training import SparseTraining, missing_state


class LightningCallback(SparseTraining, Callback):
    """Makes a LightningModule sparse while Lightning trains it.

    The optimizer and the number of steps are the trainer's own, including accumulation and mixed precision. Validation
    sees u, checkpoints include the method's state, and at the end u is written into the module. The fraction of zeros,
    the gap ‖w − u‖ and λ are logged as ``rvsm/zeros``, ``rvsm/gap`` and ``rvsm/lambda`` every ``log_every_n_steps``.

    Args:
        sparsity: the final fraction of zeros; None for a ``penalty`` with its λ.
        method: "rvsm", or the name of another method, see `rvsm.splitting.methods`.
        budget: further options of the target, such as {"by": "flops"}; see `rvsm.Budget`.
        steps: the number of optimizer steps, if the trainer does not know it.
        recalibrate: batches for batch norm, at each validation and at the end; see `rvsm.recalibrate`.
        options: all other arguments of the method. Names of weights are those in the module, such as "model.fc.*".

    Attributes:
        sparsifier: the method, from the beginning of ``fit`` on.

    Example:
        >>> callback = LightningCallback(sparsity=0.9, exclude=["model.conv1.*"])
        >>> trainer = Trainer(callbacks=[callback], max_epochs=1, logger=False, enable_checkpointing=False)

    """

    _saved: Mapping[str, Any] | None = None  # from a checkpoint, until the model is available

    # Checkpoints

    @property
    def state_key(self) -> str:
        """One key for all options, so that a checkpoint with other options is rejected instead of ignored."""
        return "rvsm"

    def state_dict(self) -> dict[str, Any]:
        """Return the method's state."""
        return {} if self.sparsifier is None else self.sparsifier.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a state until the model is available."""
        self._saved = state_dict

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Raise when resuming from a checkpoint that has no state of the method."""
        if trainer.state.fn == "fit" and not checkpoint.get("callbacks", {}).get(self.state_key):
            raise missing_state("the checkpoint")

    # The training

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach the method to the optimizer."""
        if len(trainer.optimizers) != 1:
            raise ValueError(
                f"the callback follows one optimizer but {type(pl_module).__name__} has {len(trainer.optimizers)};"
                " construct a sparsifier for each in configure_optimizers and attach it there"
            )
        model = pl_module if trainer.model is None else trainer.model
        saved, self._saved = self._saved, None
        self._begin(model, trainer.optimizers[0], steps=self._number_of_steps(trainer), saved=saved)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the sparsity metrics."""
        if trainer.loggers and (batch_idx + 1) % trainer.log_every_n_steps == 0:
            pl_module.log_dict(self._metrics(), on_step=True, on_epoch=False)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the sparsity metrics, for short epochs and for callbacks that monitor them."""
        pl_module.log_dict(self._metrics(), on_step=False, on_epoch=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write u into the module permanently."""
        self._finish()

    # Evaluation

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put u into the module, or the u of a checkpoint if one has been loaded for evaluation."""
        saved, self._saved = self._saved, None
        if saved is not None and self.sparsifier is not None:
            self._hide()
            self.sparsifier.load_state_dict(saved)
        elif saved is not None and not saved["finalized"]:
            warnings.warn(
                f"the checkpoint is from step {saved['step']}, in the middle of training, and is evaluated with its"
                " training weights, not with its sparse copy; call fit() with this ckpt_path first, or evaluate the"
                " finalized model",
                stacklevel=2,
            )
        self._show()

    def on_validation_end(self, *given: Any) -> None:
        """Restore the training weights."""
        self._hide()

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_exception = on_validation_end

    def _number_of_steps(self, trainer: Trainer) -> int | None:
        if self._steps is not None or not self._recipe.targeted:
            return self._steps
        if not trainer.lightning_module.automatic_optimization:
            raise ValueError(
                "with manual optimization the number of optimizer steps is not known: pass"
                " LightningCallback(steps=...), the number for the whole training"
            )
        found = trainer.estimated_stepping_batches
        if not 0 < found < float("inf"):
            raise ValueError(
                "the number of optimizer steps is not known, since the training data has no length or the training has"
                " no end: pass Trainer(max_steps=...), or LightningCallback(steps=...)"
            )
        return int(found)
