"""The interface of objects that follow a training."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rvsm.train.trainer import Trainer


class Callback:
    """Follows a training. All methods do nothing by default; subclasses override those they need."""

    def on_start(self, trainer: "Trainer") -> None:
        """Act before the first step, or before the first step after a resume."""

    def on_step(self, trainer: "Trainer") -> None:
        """Act after an optimizer step."""

    def on_epoch(self, trainer: "Trainer") -> None:
        """Act after the last step of an epoch."""

    def on_record(self, trainer: "Trainer", record: Mapping[str, Any]) -> None:
        """Act after an evaluation on the validation images."""

    def on_end(self, trainer: "Trainer") -> None:
        """Act after the last step, before the sparse network is written, or when the training stops early."""
