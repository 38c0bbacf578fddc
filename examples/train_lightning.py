"""Lightning: adding one callback makes the module sparse."""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from rvsm.integrations import LightningCallback


class Digits(pl.LightningModule):
    """A small network for handwritten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the classes."""
        return self.net(x)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """Return the loss of a batch."""
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch: list[Tensor]) -> None:
        """Log the accuracy; the module holds its sparse weights here."""
        x, y = batch
        self.log("val_accuracy", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return any optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


pl.seed_everything(0, verbose=False)
data = load_digits()
x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
training = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=64, shuffle=True)
validation = DataLoader(TensorDataset(x[1400:], y[1400:]), batch_size=512)

sparsity = LightningCallback(sparsity=0.9)  # 1
trainer = pl.Trainer(
    max_epochs=10,
    callbacks=[sparsity],  # 2
    accelerator="cpu",
    logger=pl.loggers.CSVLogger("logs"),
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(module := Digits(), training, validation)
trainer.validate(module, validation)
print(sparsity.sparsifier.statistics())
