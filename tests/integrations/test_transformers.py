"""The callback for Transformers, in its own Trainer, with a BERT and a ViT made from a configuration."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import rvsm

if find_spec("transformers") is None:
    pytest.skip("the extra 'transformers' is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def parts() -> Any:
    """Return transformers_parts.py: to import Transformers takes seconds, so only who runs these tests does."""
    from integrations import transformers_parts

    return transformers_parts


@pytest.mark.parametrize(("name", "data"), [("bert", "texts"), ("vit", "images")], ids=["bert", "vit"])
def test_two_lines_make_it_sparse_and_the_steps_are_found(parts: Any, tmp_path: Path, name: str, data: str) -> None:
    model, callback = getattr(parts, name)(), parts.TransformersCallback(sparsity=0.8)
    trained = parts.trainer(
        tmp_path, model, getattr(parts, data)(), gradient_accumulation_steps=2, bf16=True, lr_scheduler_type="cosine"
    )
    callback.add_to(trained)
    trained.train()
    assert callback.sparsifier is not None
    assert callback.sparsifier.budget == rvsm.Budget(0.8, 5 * 2)
    assert callback.sparsifier.step == 10
    assert not callback.sparsifier.awaits_steps()
    assert parts.zeros(model) == pytest.approx(0.8, abs=1e-3)


def test_evaluation_sees_u_and_its_accuracy_and_the_zeros_reach_the_loggers(parts: Any, tmp_path: Path) -> None:
    model, data, watcher = parts.bert(), parts.texts(), parts.Watcher()
    trained = parts.trainer(
        tmp_path,
        model,
        data,
        callbacks=[watcher],
        eval_strategy="epoch",
        eval_dataset={"a": data, "b": data},
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(1) == found.label_ids).mean())},
        per_device_eval_batch_size=32,
        save_strategy="epoch",
        save_only_model=True,
    )
    parts.TransformersCallback(sparsity=0.8).add_to(trained)
    trained.train()
    assert len(watcher.seen) == 5 * 2
    assert watcher.seen[0] == watcher.seen[1] > 0.3
    assert watcher.seen[-1] == watcher.seen[-2] == pytest.approx(0.8, abs=1e-3)
    losses = [logs for logs in watcher.logs if "loss" in logs]
    assert [logs["rvsm/zeros"] for logs in losses][-1] == pytest.approx(0.8, abs=1e-3)
    assert max(logs["rvsm/gap"] for logs in losses) > 0 == losses[-1]["rvsm/gap"]
    assert all(logs["rvsm/lambda"] > 0 for logs in losses if "rvsm/lambda" in logs)
    assert "rvsm/lambda" in losses[10]
    evaluated = [logs for logs in watcher.logs if "eval_b_accuracy" in logs]
    assert [logs["rvsm/zeros"] for logs in evaluated] == pytest.approx(watcher.seen[1::2])
    assert any("rvsm/zeros" in row for row in trained.state.log_history)
    first = parts.BertForSequenceClassification.from_pretrained(tmp_path / "checkpoint-4")
    assert parts.zeros(first) == 0  # saved after the evaluation, with the weights of the training


def test_looking_at_u_does_not_change_the_training(parts: Any, tmp_path: Path) -> None:
    looked_at, alone = parts.bert(), parts.bert()
    for model, options in ((looked_at, {"eval_strategy": "steps", "eval_steps": 3}), (alone, {})):
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0  # every data loader draws a random number, here or there
        options["train_sampling_strategy"] = "sequential"
        trained = parts.trainer(tmp_path, model, parts.texts(), eval_dataset=parts.texts(), **options)
        parts.TransformersCallback(sparsity=0.8).add_to(trained)
        trained.train()
    for name, value in alone.state_dict().items():
        assert torch.equal(value, looked_at.state_dict()[name]), name


def to_the_end(parts: Any, folder: Path, resumed: Path | None = None) -> dict[str, torch.Tensor]:
    """Return the weights of a training with a checkpoint every four steps, resumed from one of them or not."""
    model, callback = parts.bert(), parts.TransformersCallback(sparsity=0.8)
    trained = parts.trainer(folder, model, parts.texts(), save_strategy="steps", save_steps=4)
    callback.add_to(trained)
    trained.train(resume_from_checkpoint=None if resumed is None else str(resumed))
    assert callback.sparsifier.step == 20
    return model.state_dict()


@pytest.fixture(scope="module")
def whole(parts: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, torch.Tensor], Path]:
    """Return the weights at the end of a training without a break, and the folder of its checkpoints."""
    folder = tmp_path_factory.mktemp("whole")
    return to_the_end(parts, folder), folder


@pytest.mark.parametrize("step", [4, 12, 16], ids=["ramp", "hold", "heal"])
def test_a_checkpoint_resumes_bit_for_bit_wherever_it_is(parts: Any, tmp_path: Path, whole: Any, step: int) -> None:
    expected, checkpoints = whole
    shutil.move(checkpoints / f"checkpoint-{step}", tmp_path / "moved")
    found = to_the_end(parts, tmp_path / "again", tmp_path / "moved")
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name


def test_given_as_a_callback_it_works_too(parts: Any, tmp_path: Path) -> None:
    model = parts.bert()
    trained = parts.trainer(
        tmp_path, model, parts.texts(), callbacks=[parts.TransformersCallback(sparsity=0.5)], num_train_epochs=1
    )
    trained.train()
    assert parts.zeros(model) == pytest.approx(0.5, abs=1e-3)
    assert trained.state.log_history[0]["rvsm/zeros"] >= 0


def test_training_on_keeps_the_zeros(parts: Any, tmp_path: Path) -> None:
    model = parts.bert()
    trained = parts.trainer(tmp_path, model, parts.texts(), num_train_epochs=1)
    parts.TransformersCallback(sparsity=0.8).add_to(trained)
    trained.train()
    before = model.classifier.weight.detach().clone()
    trained.train()
    assert not torch.equal(before, model.classifier.weight)
    assert parts.zeros(model) == pytest.approx(0.8, abs=1e-3)


@pytest.fixture(scope="module")
def checkpoint(parts: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the checkpoint after 4 of the 8 steps of a training."""
    return parts.saved(tmp_path_factory.mktemp("saved"), parts.TransformersCallback(sparsity=0.8))


def test_a_longer_training_resumes_with_the_steps_as_they_were(parts: Any, tmp_path: Path, checkpoint: str) -> None:
    longer = parts.trainer(tmp_path, parts.bert(), parts.texts(), max_steps=9)
    parts.TransformersCallback(sparsity=0.8).add_to(longer)
    with pytest.raises(ValueError, match=r"steps=8.*but here it is .*steps=9"):
        longer.train(resume_from_checkpoint=checkpoint)
    longer = parts.trainer(tmp_path, model := parts.bert(), parts.texts(), max_steps=9)
    parts.TransformersCallback(sparsity=0.8, steps=8).add_to(longer)
    with pytest.warns(UserWarning, match="9 steps but the budget is for 8"):
        longer.train(resume_from_checkpoint=checkpoint)
    assert parts.zeros(model) == pytest.approx(0.8, abs=1e-3)


# What is refused


def test_data_without_a_length_say_what_to_pass(parts: Any, tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            data = parts.texts()
            return iter([data[i] for i in range(len(data))])

    with pytest.raises(ValueError, match="max_steps"):  # Transformers' own
        parts.trainer(tmp_path, parts.bert(), Stream())
    model = parts.bert()
    trained = parts.trainer(tmp_path, model, Stream(), max_steps=4)
    parts.TransformersCallback(sparsity=0.8).add_to(trained)
    trained.train()
    assert parts.zeros(model) == pytest.approx(0.8, abs=1e-3)


def test_a_checkpoint_without_the_state_is_refused(parts: Any, tmp_path: Path) -> None:
    checkpoint = parts.saved(tmp_path, None)
    trained = parts.trainer(tmp_path, parts.bert(), parts.texts(), num_train_epochs=2)
    parts.TransformersCallback(sparsity=0.8).add_to(trained)
    with pytest.raises(ValueError, match="the checkpoint of step 4 has no state of the sparsifier"):
        trained.train(resume_from_checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparsity": 0.7}, r"different budget: Budget\(sparsity=0.8.*but here it is Budget\(sparsity=0.7"),
        ({"sparsity": 0.8, "exclude": ["classifier.*"]}, "another model or another selection.*unexpected classifier"),
        ({"sparsity": 0.8, "method": "magnitude"}, "expected a state of the method 'magnitude' but got one of 'rvsm'"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    parts: Any, tmp_path: Path, checkpoint: str, options: dict[str, Any], message: str
) -> None:
    trained = parts.trainer(tmp_path, parts.bert(), parts.texts(), num_train_epochs=2)
    parts.TransformersCallback(**options).add_to(trained)
    with pytest.raises(ValueError, match=message):
        trained.train(resume_from_checkpoint=checkpoint)


def test_loading_the_best_model_at_the_end_is_refused(parts: Any, tmp_path: Path) -> None:
    options = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    trained = parts.trainer(tmp_path, parts.bert(), parts.texts(), eval_dataset=parts.texts(), **options)
    parts.TransformersCallback(sparsity=0.8).add_to(trained)
    with pytest.raises(ValueError, match="load_best_model_at_end=True would restore weights"):
        trained.train()


@pytest.mark.parametrize(("name", "data"), [("bert", "texts"), ("vit", "images")], ids=["bert", "vit"])
def test_a_model_compiles_and_returns_its_own_kind_of_output(parts: Any, name: str, data: str) -> None:
    network, batch = getattr(parts, name)().eval(), getattr(parts, data)().examples[:3]
    program = rvsm.compile(network, batch, threads=1)
    with torch.no_grad():
        expected = network(batch)
    found = program(batch)
    assert type(found) is type(expected)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
