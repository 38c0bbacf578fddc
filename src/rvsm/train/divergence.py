"""Errors for a loss that is no longer finite: the step, the likely cause, and what to do."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rvsm.train.trainer import Trainer


class DivergenceError(ValueError):
    """A training whose loss became infinite or undefined."""


def explain_divergence(trainer: "Trainer", x: Tensor, loss: float, rate: float) -> DivergenceError:
    """Return the error for a loss that is not finite."""
    if not bool(torch.isfinite(x).all()):
        cause = "the images of this batch contain values that are not finite"
    elif broken := [n for n, p in trainer.model.named_parameters() if not bool(torch.isfinite(p).all())]:
        cause = f"the weights of {broken[0]!r} overflowed in an earlier step: {_advice(trainer, rate)}"
    elif trainer.step == 0:
        cause = "the outputs of the network overflow before the first step; check its initial weights"
    else:
        cause = f"the outputs of the network overflowed: {_advice(trainer, rate)}"
    return DivergenceError(
        f"the loss became {loss} at step {trainer.step} (epoch {trainer.epoch:.2f}), with a learning rate of {rate:g}."
        f" The likely cause: {cause}."
    )


def require_finite_weights(trainer: "Trainer") -> None:
    """Raise if the last step left weights that are not finite, which the loss does not show yet."""
    if broken := [n for n, p in trainer.model.named_parameters() if not bool(torch.isfinite(p).all())]:
        rate = float(trainer.optimizer.param_groups[0]["lr"])
        raise DivergenceError(
            f"after step {trainer.step} (epoch {trainer.epoch:.2f}) the weights of {broken[0]!r} are not finite:"
            f" {_advice(trainer, rate)}."
        )


def _advice(trainer: "Trainer", rate: float) -> str:
    changes = [f"--optimizer.lr {trainer.lr / 10:g}"]
    if trainer.config.training.clip is None:
        changes.append("--training.clip 1")
    if not trainer.config.schedule.options.get("warmup", True):
        changes.append("--schedule.warmup 0.05")
    return f"the steps are too large; try {' or '.join(changes)}"
