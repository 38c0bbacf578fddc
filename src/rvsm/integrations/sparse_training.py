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
    """The base of the callbacks: their arguments, and the lifecycle of a method in another library's training loop."""

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
        self._recipe = Recipe(method=method, sparsity=sparsity, budget=budget, options=options)
        self._steps, self._recalibrate = steps, recalibrate
        self.sparsifier: Method | None = None
        self._model: nn.Module | None = None
        self._shown = ExitStack()
        self._shown_metrics: dict[str, float] | None = None  # metrics of the copy that is shown now

    def _begin(
        self, model: nn.Module, optimizer: Optimizer, *, steps: int | None, saved: Mapping[str, Any] | None
    ) -> None:
        """Attach the method to the optimizer: a new method, or the one from an earlier training of the same model.

        A saved state is loaded first, so that zeros that the method still holds are not written into loaded weights.
        """
        self._hide()
        if self.sparsifier is None or self._model is not unwrap(model):
            built = self._recipe.build(model, steps)
        else:
            built = self.sparsifier
            built.detach()
        if saved is not None:
            built.load_state_dict(saved)
        built.attach(optimizer)
        self.sparsifier, self._model = built, unwrap(model)

    def _show(self) -> None:
        """Put u into the model until `_hide`; a finalized model already holds u."""
        if self._shown_metrics is None and self.sparsifier is not None and self.sparsifier.awaits_steps():
            self._shown_metrics = self._metrics()
            self._shown.enter_context(self.sparsifier.sparse_weights(recalibrate=self._recalibrate))

    def _hide(self) -> None:
        """Restore the training weights."""
        self._shown_metrics = None
        self._shown.close()

    def _finish(self) -> None:
        """Write u into the model permanently."""
        self._hide()
        if self.sparsifier is not None and self.sparsifier.awaits_steps():
            self.sparsifier.finalize(recalibrate=self._recalibrate)

    def _metrics(self) -> dict[str, float]:
        """Return the fraction of zeros, ‖w − u‖ and, if there is one, the mean of λ over the layers."""
        if self._shown_metrics is not None:
            return dict(self._shown_metrics)
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
