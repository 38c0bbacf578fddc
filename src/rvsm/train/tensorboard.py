"""Write TensorBoard's files beside a run's own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rvsm.train.callbacks import Callback
from rvsm.train.trainer import Trainer


class TensorBoard(Callback):
    """Writes the numbers of each record as scalars; needs the package tensorboard."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError(
                "training.tensorboard needs the package tensorboard: pip install tensorboard, or leave the option out"
            ) from None
        self._writer = SummaryWriter(folder)

    def on_record(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        """Write the numbers."""
        for key in ("loss", "learning_rate", "sparsity", "gap", "lagrangian", "images_per_second"):
            if key in record:
                self._writer.add_scalar(key, record[key], trainer.step)
        for copy in ("w", "u"):
            if copy in record:
                value = record[copy]["accuracy"]
                self._writer.add_scalar(f"accuracy/{copy}", value, trainer.step)

    def on_end(self, trainer: Trainer) -> None:
        """Close the files."""
        self._writer.close()
