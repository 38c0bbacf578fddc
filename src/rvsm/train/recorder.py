"""Write the progress of a training into the folder of its run."""

import shlex
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from rvsm.config import Config
from rvsm.config.sections import is_own
from rvsm.records import Run
from rvsm.train.trainer import Callback, Trainer


@contextmanager
def writing(folder: Path, config: Config) -> Iterator[None]:
    """Explain what to do if the folder of a run cannot be written to."""
    try:
        yield
    except OSError as error:
        advice = "Free some space, grant access, or choose another folder"
        if (folder / "config.toml").exists():
            advice = "Earlier work is not lost. Free some space or grant access, then continue with: "
            advice += resuming(folder, config)
        raise ValueError(f"{folder} cannot be written to: {error.strerror or error}. {advice}") from None


def quoted(folder: Path) -> str:
    """Return the path of a folder, quoted for a shell."""
    return shlex.quote(str(folder))


def resuming(folder: Path, config: Config) -> str:
    """Return the command that resumes a run; it names the model if it is the user's own."""
    model = config.model.name
    return f"rvsm resume {quoted(folder)}" + (f" --allow-import {model}" if is_own(model) else "")


class StoppedError(KeyboardInterrupt):
    """A training that stopped on request, after writing a checkpoint."""


class Recorder(Callback):
    """Writes metrics, and checkpoints every few minutes. On Ctrl-C or termination, writes one more and stops.

    Args:
        run: the folder; None on processes that only stop together with the one that writes.
        minutes: the time between two checkpoints.

    """

    def __init__(self, run: Run | None, minutes: float = 10) -> None:
        self.run, self.minutes = run, minutes
        self._saved_at = time.monotonic()
        self._stop = False
        self._handlers: dict[int, Any] = {}

    def on_start(self, trainer: Trainer) -> None:
        """Take over Ctrl-C, which would leave the weights half updated in the middle of a step."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # scripts start background processes that way
                    self._handlers[number] = signal.signal(number, self._ask)

    def on_step(self, trainer: Trainer) -> None:
        """Save when a checkpoint is due, and stop on request; the end of an epoch waits for its evaluation."""
        if trainer.step % len(trainer.batches):
            self._save_if(trainer, due=self._late)

    def on_record(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        if self.run is not None:
            with writing(self.run.folder, trainer.config):
                self.run.append(record)

    def on_epoch(self, trainer: Trainer) -> None:
        """Save after one or more epochs."""
        due = round(trainer.epoch) % trainer.config.training.checkpoint_every == 0
        self._save_if(trainer, due=due or trainer.step == trainer.steps or self._late)

    def on_end(self, trainer: Trainer) -> None:
        """Restore the handling of Ctrl-C."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def _late(self) -> bool:
        return time.monotonic() - self._saved_at > 60 * self.minutes

    def _save_if(self, trainer: Trainer, *, due: bool) -> None:
        """Save if a checkpoint is due, or if one of the processes was asked to stop, and then stop."""
        stop = trainer.ranks.any(self._stop)
        if due or stop:
            finite = all(bool(torch.isfinite(w).all()) for w in trainer.model.parameters())
            if finite and self.run is not None:  # if not finite, the next loss shows it
                with writing(self.run.folder, trainer.config):
                    self.run.save(trainer.step, trainer.state())
            self._saved_at = time.monotonic()
        if stop:
            raise StoppedError(f"stopped at step {trainer.step} of {trainer.steps}")

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._stop:  # a second request: the previous checkpoint is enough
            raise KeyboardInterrupt
        self._stop = True
