"""The callback for Lightning, in Lightning's own Trainer."""

import doctest
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import rvsm
from rvsm.metrics import sparsity

if find_spec("lightning") is None:
    pytest.skip("the extra 'lightning' is not installed", allow_module_level=True)

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),  # its advice
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),  # between Lightning and torch
]


@pytest.fixture(scope="module")
def parts() -> Any:
    """Return lightning_parts.py: to import Lightning takes seconds, so only a process that runs these tests does."""
    from integrations import lightning_parts

    return lightning_parts


def loader(points: TensorDataset) -> DataLoader[Any]:
    return DataLoader(points, batch_size=8, shuffle=True)


def test_two_lines_make_it_sparse_and_the_steps_are_found(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    model, callback = parts.Classifier(), parts.LightningCallback(sparsity=0.9)
    parts.trainer(tmp_path, callback, accumulate_grad_batches=2, precision="bf16-mixed").fit(model, loader(points))
    assert callback.sparsifier is not None
    assert callback.sparsifier.budget == rvsm.Budget(0.9, 6 * 4)
    assert callback.sparsifier.step == 24
    assert model.zeros() == pytest.approx(0.9, abs=1 / 704)
    assert not callback.sparsifier.awaits_steps()


def test_validation_sees_u_and_its_accuracy_and_the_zeros_reach_the_logger(
    tmp_path: Path, points: TensorDataset, parts: Any
) -> None:
    model, callback, logger = parts.Classifier(), parts.LightningCallback(sparsity=0.9), parts.Memory()
    fitted = parts.trainer(tmp_path, callback, logger=logger, log_every_n_steps=2)
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


def test_looking_at_u_does_not_change_the_training(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    validated, alone = parts.undisturbed(), parts.undisturbed()
    ordered = DataLoader(points, batch_size=8)
    for model, data in ((validated, [DataLoader(points, batch_size=64)]), (alone, [])):
        callback = parts.LightningCallback(sparsity=0.9, recalibrate=loader(points) if data else None)
        parts.trainer(tmp_path, callback, max_epochs=2).fit(model, ordered, *data)
    assert torch.equal(validated.net[0].weight, alone.net[0].weight)


@pytest.fixture(scope="module")
def whole(
    parts: Any, points: TensorDataset, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Tensor], Path]:
    """Return the weights at the end of a training without a break, and the folder of its checkpoints."""
    model, folder = parts.undisturbed(), tmp_path_factory.mktemp("whole")
    parts.trainer(folder, parts.LightningCallback(sparsity=0.9)).fit(model, DataLoader(points, batch_size=8))
    return model.state_dict(), folder


@pytest.mark.parametrize("epoch", [1, 3, 4], ids=["ramp", "hold", "heal"])
def test_a_checkpoint_resumes_bit_for_bit(
    tmp_path: Path, points: TensorDataset, parts: Any, whole: Any, epoch: int
) -> None:
    expected, checkpoints = whole
    again, callback = parts.undisturbed(), parts.LightningCallback(sparsity=0.9)
    ordered = DataLoader(points, batch_size=8)
    parts.trainer(tmp_path, callback).fit(again, ordered, ckpt_path=checkpoints / f"epoch={epoch}.ckpt")
    assert callback.sparsifier.step == 48
    for name, value in expected.items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_a_checkpoint_in_the_ramp_is_tested_as_u(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    model, callback = parts.Classifier(), parts.LightningCallback(sparsity=0.9)
    fitted = parts.trainer(tmp_path, callback)
    fitted.fit(model, loader(points))
    held = DataLoader(points, batch_size=64)
    fitted.test(model, held, ckpt_path=str(tmp_path / "epoch=1.ckpt"), verbose=False)
    assert 0.3 < model.seen[-1] < 0.89
    assert model.zeros() == 0  # the checkpoint holds v, and so does the model again
    fitted.test(model, held, ckpt_path=str(tmp_path / "epoch=5.ckpt"), verbose=False)
    assert model.seen[-1] == pytest.approx(0.9, abs=1e-2)


def test_a_checkpoint_of_another_process_is_tested_with_a_word(
    tmp_path: Path, points: TensorDataset, parts: Any
) -> None:
    parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9), max_epochs=2).fit(parts.Classifier(), loader(points))
    later = parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9))
    with pytest.warns(UserWarning, match="is from step 8, in the middle of training"):
        later.test(parts.Classifier(), loader(points), ckpt_path=str(tmp_path / "epoch=0.ckpt"), verbose=False)


def test_fitting_on_keeps_the_zeros(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    model, callback = parts.Classifier(), parts.LightningCallback(sparsity=0.9)
    parts.trainer(tmp_path, callback, max_epochs=2).fit(model, loader(points))
    before = model.net[0].weight.detach().clone()
    parts.trainer(tmp_path / "on", callback, max_epochs=1).fit(model, loader(points))
    assert not torch.equal(before, model.net[0].weight)
    assert model.zeros() == pytest.approx(0.9, abs=1e-2)


def test_a_failing_validation_leaves_the_weights_of_the_training(
    tmp_path: Path, points: TensorDataset, parts: Any
) -> None:
    model, callback = parts.Classifier(), parts.LightningCallback(sparsity=0.9)

    def fail(batch: Any) -> None:
        raise KeyError("a bug in the user's validation")

    model.validation_step = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyError, match="a bug"):
        parts.trainer(tmp_path, callback, num_sanity_val_steps=0).fit(model, loader(points), loader(points))
    assert model.zeros() == 0
    assert callback.sparsifier is not None
    assert callback.sparsifier.statistics().sparsity > 0


def test_other_methods_and_a_penalty_with_its_lambda(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    model = parts.Classifier()
    parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.8, method="magnitude"), max_epochs=2).fit(
        model, loader(points)
    )
    assert model.zeros() == pytest.approx(0.8, abs=1e-2)
    model = parts.Classifier()
    callback = parts.LightningCallback(penalty=rvsm.L0(lam=1e-3), beta=0.5, recalibrate=loader(points))
    parts.trainer(tmp_path / "l0", callback, max_epochs=2).fit(model, loader(points))
    assert model.zeros() > 0


def test_a_longer_training_resumes_with_the_steps_as_they_were(
    tmp_path: Path, points: TensorDataset, parts: Any
) -> None:
    parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9), max_epochs=2).fit(parts.Classifier(), loader(points))
    model, longer = (
        parts.Classifier(),
        parts.trainer(tmp_path / "on", parts.LightningCallback(sparsity=0.9, steps=16), max_epochs=3),
    )
    with pytest.warns(UserWarning, match="17 steps but the budget is for 16"):
        longer.fit(model, loader(points), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert model.zeros() == pytest.approx(0.9, abs=1e-2)


def test_the_trainer_of_the_older_package_takes_it_too(points: TensorDataset, parts: Any) -> None:
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
        callbacks=[parts.LightningCallback(sparsity=0.9)], max_epochs=2, enable_checkpointing=False, **quiet
    )
    fitted.fit(model := Linear(), loader(points))
    assert sparsity([model.net.weight]) == pytest.approx(0.9)


# What is refused


def test_weights_that_are_too_short_are_refused(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    with pytest.raises(ValueError, match="is bfloat16, in which a pull of less than one part in 128 is rounded away"):
        parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9), precision="bf16-true").fit(
            parts.Classifier(), loader(points)
        )


def test_a_training_without_a_known_number_of_steps_says_what_to_pass(
    tmp_path: Path, points: TensorDataset, parts: Any
) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(points)

    stream = DataLoader(Stream(), batch_size=8)
    with pytest.raises(ValueError, match=r"pass Trainer\(max_steps=...\), or LightningCallback\(steps=...\)"):
        parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9)).fit(parts.Classifier(), stream)
    model = parts.Classifier()
    parts.trainer(tmp_path / "a", parts.LightningCallback(sparsity=0.9, steps=16), max_epochs=2).fit(model, stream)
    assert model.zeros() == pytest.approx(0.9, abs=1e-2)
    parts.trainer(tmp_path / "b", parts.LightningCallback(sparsity=0.9), max_steps=8).fit(
        model := parts.Classifier(), stream
    )
    assert model.zeros() == pytest.approx(0.9, abs=1e-2)


def test_two_optimizers_are_refused(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    model = parts.Classifier(optimizers=2)
    model.automatic_optimization = False
    with pytest.raises(ValueError, match="follows one optimizer but Classifier has 2"):
        parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9)).fit(model, loader(points))


def test_manual_optimization_needs_the_number_of_steps(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    model = parts.Classifier()
    model.automatic_optimization = False
    with pytest.raises(ValueError, match=r"pass LightningCallback\(steps=...\)"):
        parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9)).fit(model, loader(points))


def test_a_checkpoint_without_the_state_is_refused(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    parts.trainer(tmp_path, None, max_epochs=1).fit(parts.Classifier(), loader(points))
    with pytest.raises(ValueError, match="the checkpoint has no state of the sparsifier"):
        parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9)).fit(
            parts.Classifier(), loader(points), ckpt_path=tmp_path / "epoch=0.ckpt"
        )


def test_a_checkpoint_of_another_sparsity_or_model_is_refused(
    tmp_path: Path, points: TensorDataset, parts: Any
) -> None:
    saved = tmp_path / "epoch=0.ckpt"
    parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9), max_epochs=1).fit(parts.Classifier(), loader(points))
    with pytest.raises(
        ValueError, match=r"different budget: Budget\(sparsity=0.9.*but here it is Budget\(sparsity=0.8"
    ):
        parts.trainer(tmp_path / "b", parts.LightningCallback(sparsity=0.8), max_epochs=1).fit(
            parts.Classifier(), loader(points), ckpt_path=saved
        )
    with pytest.raises(ValueError, match=r"unexpected net.4.weight"):
        parts.trainer(tmp_path / "c", parts.LightningCallback(sparsity=0.9, exclude=["net.4.*"]), max_epochs=1).fit(
            parts.Classifier(), loader(points), ckpt_path=saved
        )
    with pytest.raises(RuntimeError, match=r"size mismatch for net.0.weight"):  # Lightning's own
        parts.trainer(tmp_path / "d", parts.LightningCallback(sparsity=0.9), max_epochs=1).fit(
            parts.Classifier(width=16), loader(points), ckpt_path=saved
        )


def test_the_loggers_of_lightning_get_the_numbers(tmp_path: Path, points: TensorDataset, parts: Any) -> None:
    logger = parts.CSVLogger(tmp_path)
    parts.trainer(tmp_path, parts.LightningCallback(sparsity=0.9), logger=logger, max_epochs=2).fit(
        parts.Classifier(), loader(points)
    )
    assert "rvsm/zeros" in Path(logger.log_dir, "metrics.csv").read_text()


def test_the_example_in_the_documentation(
    parts: Any,
) -> None:  # pytest does not collect it, since that imports Lightning
    assert doctest.testmod(rvsm.integrations.lightning, raise_on_error=True).attempted
