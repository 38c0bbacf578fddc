"""What the tests of Lightning are made of; test_lightning.py imports it in a fixture, because Lightning is large."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger
from torch import Tensor, nn

from rvsm.integrations import LightningCallback
from rvsm.metrics import sparsity

__all__ = ["CSVLogger", "Classifier", "LightningCallback", "Memory", "trainer", "undisturbed"]


class Classifier(LightningModule):
    """Two layers with dropout and batch norm; remembers the zeros of its weights at each validation."""

    def __init__(self, width: int = 32, optimizers: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(20, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 2)
        )
        self.optimizers_wanted = optimizers
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch: list[Tensor]) -> None:
        x, y = batch
        self.seen.append(self.zeros())
        self.log("val_accuracy", (self(x).argmax(1) == y).float().mean())

    test_step = validation_step

    def configure_optimizers(self) -> Any:
        made = [
            torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
            for _ in range(self.optimizers_wanted)
        ]
        return made, [torch.optim.lr_scheduler.StepLR(made[0], 5)]

    def zeros(self) -> float:
        return sparsity([self.net[0].weight, self.net[4].weight])


class Memory(Logger):
    """Keeps what it is given."""

    name, version = "memory", 0

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append(metrics)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


def trainer(folder: Path, callback: LightningCallback | None, **options: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "logger": False}
    callbacks = [callback] if callback else []
    callbacks.append(ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1))
    return Trainer(callbacks=callbacks, default_root_dir=folder, **{**quiet, "max_epochs": 6, **options})


def undisturbed() -> Classifier:
    """Return a module that draws no random numbers: Lightning's checkpoints do not have their state."""
    model = Classifier()
    model.net[3].p = 0.0
    return model
