"""The callback for Lightning, in Lightning's own Trainer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

pytest.importorskip("lightning", reason="the extra 'lightning' is not installed")

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger

import rvsm
from rvsm.integrations import LightningCallback
from rvsm.metrics import sparsity

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),  # its advice
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),  # between Lightning and torch
]


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


def loader(points: TensorDataset) -> DataLoader[Any]:
    return DataLoader(points, batch_size=8, shuffle=True)


def undisturbed() -> Classifier:
    """Return a module that draws no random numbers: Lightning's checkpoints do not have their state."""
    model = Classifier()
    model.net[3].p = 0.0
    return model


def test_two_lines_make_it_sparse_and_the_steps_are_found(tmp_path: Path, points: TensorDataset) -> None:
    model, callback = Classifier(), LightningCallback(sparsity=0.9)
    trainer(tmp_path, callback, accumulate_grad_batches=2, precision="bf16-mixed").fit(model, loader(points))
    assert callback.sparsifier is not None
    assert callback.sparsifier.budget == rvsm.Budget(0.9, 6 * 4)
    assert callback.sparsifier.step == 24
    assert model.zeros() == pytest.approx(0.9, abs=1 / 704)
    assert not callback.sparsifier.awaits_steps()


def test_validation_sees_u_and_its_accuracy_and_the_zeros_reach_the_logger(
    tmp_path: Path, points: TensorDataset
) -> None:
    model, callback, logger = Classifier(), LightningCallback(sparsity=0.9), Memory()
    fitted = trainer(tmp_path, callback, logger=logger, log_every_n_steps=2)
    fitted.fit(model, loader(points), DataLoader(points, batch_size=64))
    assert 0 == model.seen[0] < model.seen[1] < model.seen[2] < model.seen[3]
    assert model.seen[-3:] == pytest.approx([0.9] * 3, abs=1e-2)
    logged = {key: [row[key] for row in logger.rows if key in row] for row in logger.rows for key in row}
    assert logged["rvsm/zeros"][-1] == pytest.approx(0.9, abs=1e-2)
    assert max(logged["rvsm/gap"]) > 0 == logged["rvsm/gap"][-1]
    assert min(logged["rvsm/lambda"]) > 0
    assert len(logged["val_accuracy"]) == 6
    assert len(logged["rvsm/zeros"]) >= 24
    assert fitted.callback_metrics["rvsm/zeros"] == pytest.approx(0.9, abs=1e-2)


def test_looking_at_u_does_not_change_the_training(tmp_path: Path, points: TensorDataset) -> None:
    validated, alone = undisturbed(), undisturbed()
    ordered = DataLoader(points, batch_size=8)
    for model, data in ((validated, [DataLoader(points, batch_size=64)]), (alone, [])):
        callback = LightningCallback(sparsity=0.9, recalibrate=loader(points) if data else None)
        trainer(tmp_path, callback, max_epochs=2).fit(model, ordered, *data)
    assert torch.equal(validated.net[0].weight, alone.net[0].weight)


@pytest.mark.parametrize("epoch", [1, 3, 4], ids=["ramp", "hold", "heal"])
def test_a_checkpoint_resumes_bit_for_bit(tmp_path: Path, points: TensorDataset, epoch: int) -> None:
    whole, again = undisturbed(), undisturbed()
    ordered = DataLoader(points, batch_size=8)
    trainer(tmp_path, LightningCallback(sparsity=0.9)).fit(whole, ordered)
    callback = LightningCallback(sparsity=0.9)
    trainer(tmp_path / "again", callback).fit(again, ordered, ckpt_path=tmp_path / f"epoch={epoch}.ckpt")
    assert callback.sparsifier is not None
    assert callback.sparsifier.step == 48
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_a_checkpoint_in_the_ramp_is_tested_as_u(tmp_path: Path, points: TensorDataset) -> None:
    model, callback = Classifier(), LightningCallback(sparsity=0.9)
    fitted = trainer(tmp_path, callback)
    fitted.fit(model, loader(points))
    held = DataLoader(points, batch_size=64)
    fitted.test(model, held, ckpt_path=str(tmp_path / "epoch=1.ckpt"), verbose=False)
    assert 0.3 < model.seen[-1] < 0.89
    assert model.zeros() == 0  # the checkpoint holds v, and so does the model again
    fitted.test(model, held, ckpt_path=str(tmp_path / "epoch=5.ckpt"), verbose=False)
    assert model.seen[-1] == pytest.approx(0.9, abs=1e-2)


def test_a_checkpoint_of_another_process_is_tested_with_a_word(tmp_path: Path, points: TensorDataset) -> None:
    trainer(tmp_path, LightningCallback(sparsity=0.9), max_epochs=2).fit(Classifier(), loader(points))
    later = trainer(tmp_path, LightningCallback(sparsity=0.9))
    with pytest.warns(UserWarning, match="is from step 8, in the middle of training"):
        later.test(Classifier(), loader(points), ckpt_path=str(tmp_path / "epoch=0.ckpt"), verbose=False)


def test_fitting_on_keeps_the_zeros(tmp_path: Path, points: TensorDataset) -> None:
    model, callback = Classifier(), LightningCallback(sparsity=0.9)
    trainer(tmp_path, callback, max_epochs=2).fit(model, loader(points))
    before = model.net[0].weight.detach().clone()
    trainer(tmp_path / "on", callback, max_epochs=1).fit(model, loader(points))
    assert not torch.equal(before, model.net[0].weight)
    assert model.zeros() == pytest.approx(0.9, abs=1e-2)


def test_a_failing_validation_leaves_the_weights_of_the_training(tmp_path: Path, points: TensorDataset) -> None:
    model, callback = Classifier(), LightningCallback(sparsity=0.9)

    def fail(batch: Any) -> None:
        raise KeyError("a bug in the user's validation")

    model.validation_step = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyError, match="a bug"):
        trainer(tmp_path, callback, num_sanity_val_steps=0).fit(model, loader(points), loader(points))
    assert model.zeros() == 0
    assert callback.sparsifier is not None
    assert callback.sparsifier.statistics().sparsity > 0


def test_other_methods_and_a_penalty_with_its_lambda(tmp_path: Path, points: TensorDataset) -> None:
    model = Classifier()
    trainer(tmp_path, LightningCallback(sparsity=0.8, method="magnitude"), max_epochs=2).fit(model, loader(points))
    assert model.zeros() == pytest.approx(0.8, abs=1e-2)
    model = Classifier()
    callback = LightningCallback(penalty=rvsm.L0(lam=1e-3), beta=0.5, recalibrate=loader(points))
    trainer(tmp_path / "l0", callback, max_epochs=2).fit(model, loader(points))
    assert model.zeros() > 0


def test_a_longer_training_resumes_with_the_steps_as_they_were(tmp_path: Path, points: TensorDataset) -> None:
    trainer(tmp_path, LightningCallback(sparsity=0.9), max_epochs=2).fit(Classifier(), loader(points))
    model, longer = Classifier(), trainer(tmp_path / "on", LightningCallback(sparsity=0.9, steps=16), max_epochs=3)
    with pytest.warns(UserWarning, match="17 steps but the budget is for 16"):
        longer.fit(model, loader(points), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert model.zeros() == pytest.approx(0.9, abs=1e-2)


def test_the_trainer_of_the_older_package_takes_it_too(points: TensorDataset) -> None:
    older = pytest.importorskip("pytorch_lightning", reason="pytorch_lightning is not installed")

    class Linear(older.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(20, 2)

        def training_step(self, batch: list[Tensor]) -> Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    fitted = older.Trainer(
        callbacks=[LightningCallback(sparsity=0.9)], max_epochs=2, enable_checkpointing=False, **quiet
    )
    fitted.fit(model := Linear(), loader(points))
    assert sparsity([model.net.weight]) == pytest.approx(0.9)


# What is refused


def test_weights_that_are_too_short_are_refused(tmp_path: Path, points: TensorDataset) -> None:
    with pytest.raises(ValueError, match="is bfloat16, in which a pull of less than one part in 128 is rounded away"):
        trainer(tmp_path, LightningCallback(sparsity=0.9), precision="bf16-true").fit(Classifier(), loader(points))


def test_a_training_without_a_known_number_of_steps_says_what_to_pass(tmp_path: Path, points: TensorDataset) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(points)

    stream = DataLoader(Stream(), batch_size=8)
    with pytest.raises(ValueError, match=r"pass Trainer\(max_steps=...\), or LightningCallback\(steps=...\)"):
        trainer(tmp_path, LightningCallback(sparsity=0.9)).fit(Classifier(), stream)
    model = Classifier()
    trainer(tmp_path / "a", LightningCallback(sparsity=0.9, steps=16), max_epochs=2).fit(model, stream)
    assert model.zeros() == pytest.approx(0.9, abs=1e-2)
    trainer(tmp_path / "b", LightningCallback(sparsity=0.9), max_steps=8).fit(model := Classifier(), stream)
    assert model.zeros() == pytest.approx(0.9, abs=1e-2)


def test_two_optimizers_are_refused(tmp_path: Path, points: TensorDataset) -> None:
    model = Classifier(optimizers=2)
    model.automatic_optimization = False
    with pytest.raises(ValueError, match="follows one optimizer but Classifier has 2"):
        trainer(tmp_path, LightningCallback(sparsity=0.9)).fit(model, loader(points))


def test_manual_optimization_needs_the_number_of_steps(tmp_path: Path, points: TensorDataset) -> None:
    model = Classifier()
    model.automatic_optimization = False
    with pytest.raises(ValueError, match=r"pass LightningCallback\(steps=...\)"):
        trainer(tmp_path, LightningCallback(sparsity=0.9)).fit(model, loader(points))


def test_a_checkpoint_without_the_state_is_refused(tmp_path: Path, points: TensorDataset) -> None:
    trainer(tmp_path, None, max_epochs=1).fit(Classifier(), loader(points))
    with pytest.raises(ValueError, match="the checkpoint has no state of the sparsifier"):
        trainer(tmp_path, LightningCallback(sparsity=0.9)).fit(
            Classifier(), loader(points), ckpt_path=tmp_path / "epoch=0.ckpt"
        )


def test_a_checkpoint_of_another_sparsity_or_model_is_refused(tmp_path: Path, points: TensorDataset) -> None:
    saved = tmp_path / "epoch=0.ckpt"
    trainer(tmp_path, LightningCallback(sparsity=0.9), max_epochs=1).fit(Classifier(), loader(points))
    with pytest.raises(
        ValueError, match=r"different budget: Budget\(sparsity=0.9.*but here it is Budget\(sparsity=0.8"
    ):
        trainer(tmp_path / "b", LightningCallback(sparsity=0.8), max_epochs=1).fit(
            Classifier(), loader(points), ckpt_path=saved
        )
    with pytest.raises(ValueError, match=r"unexpected net.4.weight"):
        trainer(tmp_path / "c", LightningCallback(sparsity=0.9, exclude=["net.4.*"]), max_epochs=1).fit(
            Classifier(), loader(points), ckpt_path=saved
        )
    with pytest.raises(RuntimeError, match=r"size mismatch for net.0.weight"):  # Lightning's own
        trainer(tmp_path / "d", LightningCallback(sparsity=0.9), max_epochs=1).fit(
            Classifier(width=16), loader(points), ckpt_path=saved
        )


def test_the_loggers_of_lightning_get_the_numbers(tmp_path: Path, points: TensorDataset) -> None:
    logger = CSVLogger(tmp_path)
    trainer(tmp_path, LightningCallback(sparsity=0.9), logger=logger, max_epochs=2).fit(Classifier(), loader(points))
    assert "rvsm/zeros" in Path(logger.log_dir, "metrics.csv").read_text()
