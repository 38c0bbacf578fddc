"""What the callbacks share: a method that is built when a training begins, and shown while it is evaluated."""

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
    """The life of a method in somebody else's training loop.

    Args:
        recipe: the method to build.
        recalibrate: batches to estimate the batch-norm statistics of the sparse network from.

    Attributes:
        sparsifier: the method, as soon as there is one.

    """

    def __init__(self, recipe: Recipe, recalibrate: Batches | None) -> None:
        self.recipe, self.recalibrate = recipe, recalibrate
        self.sparsifier: Method | None = None
        self._model: nn.Module | None = None
        self._shown = ExitStack()
        self._metrics: dict[str, float] | None = None  # of the copy that is shown now

    def begin(
        self, model: nn.Module, optimizer: Optimizer, *, steps: int | None, saved: Mapping[str, Any] | None
    ) -> None:
        """Attach the method to the optimizer: a new one, or the one of an earlier training of the same model.

        A saved state comes first, so that zeros that the method may still hold are not written into loaded weights.
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
        """Take the state that belongs to weights which were loaded into the model after its training."""
        self.hide()
        if self.sparsifier is not None:
            self.sparsifier.load_state_dict(saved)

    def show(self) -> None:
        """Put u into the model until `hide`; a finalized model is u already."""
        if self._metrics is None and self.sparsifier is not None and self.sparsifier.awaits_steps():
            self._metrics = self.metrics()
            self._shown.enter_context(self.sparsifier.sparse_weights(recalibrate=self.recalibrate))

    def hide(self) -> None:
        """Put the weights of the training back."""
        self._metrics = None
        self._shown.close()

    def finish(self) -> None:
        """Write u into the model for good."""
        self.hide()
        if self.sparsifier is not None and self.sparsifier.awaits_steps():
            self.sparsifier.finalize(recalibrate=self.recalibrate)

    def metrics(self) -> dict[str, float]:
        """Return the fraction of zeros, ‖w − u‖ and, while there is one, λ as the mean over the layers."""
        if self._metrics is not None:
            return dict(self._metrics)
        if self.sparsifier is None:
            return {}
        statistics = self.sparsifier.statistics()
        lam = [layer.lam for layer in statistics.layers if layer.lam is not None]
        measured = {"rvsm/zeros": statistics.sparsity, "rvsm/gap": statistics.gap}
        return measured | ({"rvsm/lambda": fmean(lam)} if lam else {})


def missing_state(where: str) -> ValueError:
    """Return the refusal of a checkpoint that has weights and no state of the method."""
    return ValueError(
        f"{where} has no state of the sparsifier, without which its weights cannot be trained on; resume from a"
        " checkpoint that was saved with this callback, or load the weights into the model and begin a new training"
    )
