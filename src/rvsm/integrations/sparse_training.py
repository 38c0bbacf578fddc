"""What the callbacks share: a method that is built when training begins, and whose u is shown in evaluations."""

from collections.abc import Mapping
from contextlib import ExitStack
from statistics import fmean
from typing import Any

from torch import nn
from torch.optim import Optimizer

from rvsm.integrations.recipe import Recipe
from rvsm.splitting import Method
from rvsm.splitting.recalibrate import Batches
from rvsm.splitting.weights import unwrap


class SparseTraining:
    """The lifecycle of a method in the training loop of another library.

    Args:
        recipe: the method to build.
        recalibrate: batches to estimate the batch-norm statistics of the sparse network from.

    Attributes:
        sparsifier: the method; None before it is built.

    """

    def __init__(self, recipe: Recipe, recalibrate: Batches | None) -> None:
        self.recipe, self.recalibrate = recipe, recalibrate
        self.sparsifier: Method | None = None
        self._model: nn.Module | None = None
        self._shown = ExitStack()
        self._metrics: dict[str, float] | None = None  # metrics of the copy that is shown now

    def begin(
        self, model: nn.Module, optimizer: Optimizer, *, steps: int | None, saved: Mapping[str, Any] | None
    ) -> None:
        """Attach the method to the optimizer: a new method, or the one from an earlier training of the same model.

        A saved state is loaded first, so that zeros that the method still holds are not written into loaded weights.
        """
        self.hide()
        if self.sparsifier is None or self._model is not unwrap(model):
            built = self.recipe.build(model, steps)
        else:
            built = self.sparsifier
            built.detach()
        if saved is not None:
            built.load_state_dict(saved)
        built.attach(optimizer)
        self.sparsifier, self._model = built, unwrap(model)

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load the state that belongs to weights that were loaded into the model after training."""
        self.hide()
        if self.sparsifier is not None:
            self.sparsifier.load_state_dict(saved)

    def show(self) -> None:
        """Put u into the model until `hide`; a finalized model already holds u."""
        if self._metrics is None and self.sparsifier is not None and self.sparsifier.awaits_steps():
            self._metrics = self.metrics()
            self._shown.enter_context(self.sparsifier.sparse_weights(recalibrate=self.recalibrate))

    def hide(self) -> None:
        """Restore the training weights."""
        self._metrics = None
        self._shown.close()

    def finish(self) -> None:
        """Write u into the model permanently."""
        self.hide()
        if self.sparsifier is not None and self.sparsifier.awaits_steps():
            self.sparsifier.finalize(recalibrate=self.recalibrate)

    def metrics(self) -> dict[str, float]:
        """Return the fraction of zeros, ‖w − u‖ and, if there is one, the mean of λ over the layers."""
        if self._metrics is not None:
            return dict(self._metrics)
        if self.sparsifier is None:
            return {}
        statistics = self.sparsifier.statistics()
        lam = [layer.lam for layer in statistics.layers if layer.lam is not None]
        measured = {"rvsm/zeros": statistics.sparsity, "rvsm/gap": statistics.gap}
        return measured | ({"rvsm/lambda": fmean(lam)} if lam else {})


def missing_state(where: str) -> ValueError:
    """Return the error for a checkpoint that has weights but no state of the method."""
    return ValueError(
        f"{where} has no state of the sparsifier, which is needed to continue training; resume from a checkpoint"
        " that was saved with this callback, or load the weights into the model and start a new training"
    )
