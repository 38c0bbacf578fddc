"""What the callbacks share: a method that is chosen first and built when training begins, and whose u is evaluated."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from inspect import signature
from statistics import fmean
from typing import Any

from torch import nn
from torch.optim import Optimizer

from rvsm.splitting import Budget, Method, methods
from rvsm.splitting.budget import require_fraction
from rvsm.splitting.recalibrate import Batches
from rvsm.splitting.weights import unwrap


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method without its model and without the number of steps, which come from a trainer.

    Args:
        method: the name of a method.
        sparsity: the final fraction of zeros; None for a penalty with its λ, or for a target speed.
        budget: further options of the target, such as {"by": "flops"}, or a speed instead of it, {"speedup": 5}.
        options: all other arguments of the method.

    >>> recipe = Recipe(method="rvsm", sparsity=0.9, budget={"scope": "layer"}, options={"exclude": ["bias"]})
    >>> recipe.build(nn.Linear(10, 10), steps=100).budget
    Budget(sparsity=0.9, steps=100, ramp=0.5, heal=0.3, scope='layer', by='weights', normalize=False, floor=None, every=None)

    """  # noqa: E501 - the line of a doctest

    method: str
    sparsity: float | None
    budget: Mapping[str, Any] | None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.method not in methods():
            raise ValueError(f"unknown method {self.method!r}; choose from {', '.join(methods())}")
        known = self._known()
        others = known - {"sparsity", "steps", "budget"}
        if unknown := sorted(self.options.keys() - others):
            raise TypeError(f"{self.method} has no option {unknown[0]!r}; it has {', '.join(sorted(others))}")
        if self.budget is not None:
            self._check_budget(known)
        if self.sparsity is not None:
            require_fraction(self.sparsity)
            if "sparsity" not in known:
                raise ValueError(f"{self.method} takes no sparsity; give it a penalty with its λ")
        elif "penalty" not in self.options and not self.targeted:
            raise ValueError("give sparsity=, the final fraction of zeros, or penalty= with its λ")

    @property
    def targeted(self) -> bool:
        """Whether there is a target, a sparsity or a speed, which needs to know the number of steps."""
        return self.sparsity is not None or (self.budget or {}).get("speedup") is not None

    def build(self, model: nn.Module, steps: int | None) -> Method:
        """Return the method for a model and a training with this number of steps."""
        known = self._known()
        derived: dict[str, Any] = {}
        if self.targeted and self.budget is not None:
            derived["budget"] = Budget(self.sparsity, **{"steps": steps, **self.budget})
        elif self.sparsity is not None:
            derived |= {"sparsity": self.sparsity, "steps": steps}
        if self.method == "rvsm" and "penalty" not in self.options:
            derived["penalty"] = "l0"
        method: Callable[..., Method] = methods()[self.method]
        return method(model, **{k: v for k, v in derived.items() if k in known}, **self.options)

    def _check_budget(self, known: set[str]) -> None:
        """Raise unless the further options of the target are valid."""
        options = [field.name for field in fields(Budget) if field.name not in ("sparsity", "steps")]
        if not isinstance(self.budget, Mapping) or not self.budget.keys() <= set(options):
            raise TypeError(
                "budget must be a dict of further options of the target, such as {'by': 'flops'}, without the number of"
                f" steps, which the trainer knows; it can have {', '.join(options)} but is {self.budget!r}"
            )
        if not self.targeted:
            raise ValueError("budget= has further options of a target: give sparsity=, too")
        if "budget" not in known:
            raise ValueError(f"{self.method} has no budget; omit budget=")
        Budget(self.sparsity, steps=1, **self.budget)  # makes the checks that are possible before training

    def _known(self) -> set[str]:
        return set(signature(methods()[self.method]).parameters) - {"model"}


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
