"""Show the progress of a training: a progress bar on a terminal, plain lines elsewhere, and TensorBoard files."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rvsm.extras import needed_by
from rvsm.files import printable
from rvsm.train.trainer import Callback, Trainer

_FEW_STEPS = 300
"""With fewer steps, the first tenths are too short to find the weights that matter, and the last ones only heal."""


class Display(Callback):
    """Prints a line for each evaluation, unless brief, above a progress bar if there is a terminal."""

    def __init__(self, console: Console, *, brief: bool = False) -> None:
        self.console, self.brief = console, brief
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def on_start(self, trainer: Trainer) -> None:
        """Print the number of steps, and start the bar."""
        if not self.brief and not trainer.step:
            self._print_length(trainer)
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.percentage:3.0f} %"),
            )
            self._progress = Progress(*columns, TimeRemainingColumn(), console=self.console, transient=True)
            self._task = self._progress.add_task(
                printable(trainer.config.name), total=trainer.steps, completed=trainer.step, refresh=True
            )
            self._progress.start()

    def on_step(self, trainer: Trainer) -> None:
        """Move the bar."""
        if self._progress is not None:
            self._progress.update(self._task, completed=trainer.step)

    def on_record(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        """Print the line."""
        if not self.brief:
            line(self.console, record, trainer.config.training.epochs)

    def _print_length(self, trainer: Trainer) -> None:
        batches, epochs = trainer.batches, trainer.config.training.epochs
        last = batches.images_used - (len(batches) - 1) * batches.batch_size
        smaller = f", the last of {last}" if last < batches.batch_size else ""
        text = f"{trainer.steps:,} steps: {epochs} × {len(batches)} batches of {batches.batch_size} images{smaller}"
        if trainer.steps < _FEW_STEPS:
            text += "; this is a small number, so try more --training.epochs, or a smaller --training.batch"
        style = "yellow" if trainer.steps < _FEW_STEPS else None
        self.console.print(text, style=style, highlight=False, soft_wrap=True)

    def on_end(self, trainer: Trainer) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()


class TensorBoard(Callback):
    """Writes the numbers of each record as scalars; needs the extra ``tensorboard``.

    The folder is created when the training begins.
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
        for key in ("loss", "learning_rate", "sparsity", "speedup", "gap", "lagrangian", "images_per_second"):
            if key in record:
                self._writer.add_scalar(key, record[key], trainer.step)
        for copy in ("w", "u"):
            if copy in record:
                self._writer.add_scalar(f"accuracy/{copy}", record[copy]["accuracy"], trainer.step)

    def on_end(self, trainer: Trainer) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()


def line(console: Console, record: Mapping[str, Any], epochs: int) -> None:
    """Print a record as one line."""
    parts = [f"epoch {record['epoch']:>{len(str(epochs))}}/{epochs}", f"loss {record['loss']:.4f}"]
    parts += [f"{copy} {100 * record[copy]['accuracy']:5.2f} %" for copy in "wu" if copy in record]
    if "sparsity" in record:
        parts += [f"zeros {100 * record['sparsity']:5.2f} %", f"gap {record['gap']:.3g}"]
    if "speedup" in record:
        parts.append(f"{record['speedup']:5.2f} × as fast")
    if record.get("phase"):
        parts.append(f"{record['phase']:4}")
    parts += [f"{record['images_per_second']:,.0f} images/s", f"{clock(record['time_left'])} left"]
    console.print("  ".join(parts), highlight=False, markup=False, soft_wrap=True)


def clock(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds.

    >>> clock(3725.4), clock(5)
    ('1:02:05', '0:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
