"""Write TensorBoard files in addition to the files of a run."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rvsm.extras import needed_by
from rvsm.train.callbacks import Callback
from rvsm.train.trainer import Trainer


class TensorBoard(Callback):
    """Writes the numbers of each record as scalars; needs the extra ``tensorboard``.

    Args:
        folder: the folder of the files, created when the training begins.

    """

    def __init__(self, folder: Path) -> None:
        with needed_by("training.tensorboard", extra="tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._open = partial(SummaryWriter, folder)
        self._writer: SummaryWriter | None = None

    def on_start(self, trainer: Trainer) -> None:
        """Open the files; entries that a killed process wrote after the checkpoint are discarded."""
        self._writer = self._open(purge_step=trainer.step + 1)

    def on_record(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        """Write the numbers."""
        assert self._writer is not None
        for key in ("loss", "learning_rate", "sparsity", "gap", "lagrangian", "images_per_second"):
            if key in record:
                self._writer.add_scalar(key, record[key], trainer.step)
        for copy in ("w", "u"):
            if copy in record:
                value = record[copy]["accuracy"]
                self._writer.add_scalar(f"accuracy/{copy}", value, trainer.step)

    def on_end(self, trainer: Trainer) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()
