"""The callback for Transformers, in its own Trainer, with a BERT and a ViT made from a configuration."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

pytest.importorskip("transformers", reason="the extra 'transformers' is not installed")

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

import rvsm
from rvsm.integrations import TransformersCallback
from rvsm.metrics import sparsity


class Examples(Dataset[dict[str, torch.Tensor]]):
    """Random examples, with a class that can be learned."""

    def __init__(self, name: str, examples: torch.Tensor) -> None:
        self.name, self.examples = name, examples
        self.labels = (examples.flatten(1)[:, 0] > examples.flatten(1)[:, 1]).long()

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {self.name: self.examples[i], "labels": self.labels[i]}


def texts() -> Examples:
    return Examples("input_ids", torch.randint(0, 50, (32, 8), generator=torch.Generator().manual_seed(0)))


def images() -> Examples:
    return Examples("pixel_values", torch.randn(32, 3, 16, 16, generator=torch.Generator().manual_seed(0)))


def bert(layers: int = 1) -> BertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": layers}
    return BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=8, **sizes))


def vit() -> ViTForImageClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, **sizes))


def trainer(folder: Path, model: Any, data: Any, **options: Any) -> Trainer:
    callbacks = options.pop("callbacks", [])
    evaluated = {key: options.pop(key) for key in ("eval_dataset", "compute_metrics") if key in options}
    quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 1}
    usual = {"num_train_epochs": 5, "per_device_train_batch_size": 8, "learning_rate": 1e-2, "seed": 3}
    args = TrainingArguments(str(folder), **{**quiet, **usual, **options})
    return Trainer(model, args, train_dataset=data, callbacks=callbacks, **evaluated)


def zeros(model: Any) -> float:
    return sparsity(m.weight for m in model.modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv2d))


class Watcher(TrainerCallback):
    """Stands for a logger, and for whatever looks at a model while it is evaluated."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []
        self.seen: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, *, logs: dict[str, float], **kwargs: Any) -> None:
        self.logs.append(dict(logs))

    def on_prediction_step(self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any) -> None:
        self.seen.append(zeros(model))


@pytest.mark.parametrize(("make", "data"), [(bert, texts), (vit, images)], ids=["bert", "vit"])
def test_two_lines_make_it_sparse_and_the_steps_are_found(tmp_path: Path, make: Any, data: Any) -> None:
    model, callback = make(), TransformersCallback(sparsity=0.8)
    trained = trainer(tmp_path, model, data(), gradient_accumulation_steps=2, bf16=True, lr_scheduler_type="cosine")
    callback.add_to(trained)
    trained.train()
    assert callback.sparsifier is not None
    assert callback.sparsifier.budget == rvsm.Budget(0.8, 5 * 2)
    assert callback.sparsifier.step == 10
    assert not callback.sparsifier.awaits_steps()
    assert zeros(model) == pytest.approx(0.8, abs=1e-3)


def test_evaluation_sees_u_and_its_accuracy_and_the_zeros_reach_the_loggers(tmp_path: Path) -> None:
    model, data, watcher = bert(), texts(), Watcher()
    trained = trainer(
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
    TransformersCallback(sparsity=0.8).add_to(trained)
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
    first = BertForSequenceClassification.from_pretrained(tmp_path / "checkpoint-4")
    assert zeros(first) == 0  # saved after the evaluation, with the weights of the training


def test_looking_at_u_does_not_change_the_training(tmp_path: Path) -> None:
    looked_at, alone = bert(), bert()
    for model, options in ((looked_at, {"eval_strategy": "steps", "eval_steps": 3}), (alone, {})):
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0  # every data loader draws a random number, here or there
        options["train_sampling_strategy"] = "sequential"
        trained = trainer(tmp_path, model, texts(), eval_dataset=texts(), **options)
        TransformersCallback(sparsity=0.8).add_to(trained)
        trained.train()
    for name, value in alone.state_dict().items():
        assert torch.equal(value, looked_at.state_dict()[name]), name


@pytest.mark.parametrize("step", [4, 12, 16], ids=["ramp", "hold", "heal"])
def test_a_checkpoint_resumes_bit_for_bit_wherever_it_is(tmp_path: Path, step: int) -> None:
    whole, again = bert(), bert()
    for model, folder, resumed in ((whole, "whole", None), (again, "again", tmp_path / f"moved-{step}")):
        callback = TransformersCallback(sparsity=0.8)
        trained = trainer(tmp_path / folder, model, texts(), save_strategy="steps", save_steps=4)
        callback.add_to(trained)
        trained.train(resume_from_checkpoint=None if resumed is None else str(resumed))
        assert callback.sparsifier is not None
        assert callback.sparsifier.step == 20
        if resumed is None:
            shutil.move(tmp_path / "whole" / f"checkpoint-{step}", tmp_path / f"moved-{step}")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_given_as_a_callback_it_works_too(tmp_path: Path) -> None:
    model = bert()
    trained = trainer(tmp_path, model, texts(), callbacks=[TransformersCallback(sparsity=0.5)], num_train_epochs=1)
    trained.train()
    assert zeros(model) == pytest.approx(0.5, abs=1e-3)
    assert trained.state.log_history[0]["rvsm/zeros"] >= 0


def test_training_on_keeps_the_zeros(tmp_path: Path) -> None:
    model = bert()
    trained = trainer(tmp_path, model, texts(), num_train_epochs=1)
    TransformersCallback(sparsity=0.8).add_to(trained)
    trained.train()
    before = model.classifier.weight.detach().clone()
    trained.train()
    assert not torch.equal(before, model.classifier.weight)
    assert zeros(model) == pytest.approx(0.8, abs=1e-3)


def test_a_longer_training_resumes_with_the_steps_as_they_were(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, TransformersCallback(sparsity=0.8))
    longer = trainer(tmp_path, bert(), texts(), max_steps=9)
    TransformersCallback(sparsity=0.8).add_to(longer)
    with pytest.raises(ValueError, match=r"steps=8.*but here it is .*steps=9"):
        longer.train(resume_from_checkpoint=checkpoint)
    longer = trainer(tmp_path, model := bert(), texts(), max_steps=9)
    TransformersCallback(sparsity=0.8, steps=8).add_to(longer)
    with pytest.warns(UserWarning, match="9 steps but the budget is for 8"):
        longer.train(resume_from_checkpoint=checkpoint)
    assert zeros(model) == pytest.approx(0.8, abs=1e-3)


# What is refused


def test_data_without_a_length_say_what_to_pass(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            data = texts()
            return iter([data[i] for i in range(len(data))])

    with pytest.raises(ValueError, match="max_steps"):  # Transformers' own
        trainer(tmp_path, bert(), Stream())
    model = bert()
    trained = trainer(tmp_path, model, Stream(), max_steps=4)
    TransformersCallback(sparsity=0.8).add_to(trained)
    trained.train()
    assert zeros(model) == pytest.approx(0.8, abs=1e-3)


def saved(folder: Path, callback: TransformersCallback | None) -> str:
    trained = trainer(folder, bert(), texts(), num_train_epochs=2, save_strategy="steps", save_steps=4)
    if callback is not None:
        callback.add_to(trained)
    trained.train()
    return str(folder / "checkpoint-4")


def test_a_checkpoint_without_the_state_is_refused(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, None)
    trained = trainer(tmp_path, bert(), texts(), num_train_epochs=2)
    TransformersCallback(sparsity=0.8).add_to(trained)
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
def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    checkpoint = saved(tmp_path, TransformersCallback(sparsity=0.8))
    trained = trainer(tmp_path, bert(), texts(), num_train_epochs=2)
    TransformersCallback(**options).add_to(trained)
    with pytest.raises(ValueError, match=message):
        trained.train(resume_from_checkpoint=checkpoint)


def test_loading_the_best_model_at_the_end_is_refused(tmp_path: Path) -> None:
    options = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    trained = trainer(tmp_path, bert(), texts(), eval_dataset=texts(), **options)
    TransformersCallback(sparsity=0.8).add_to(trained)
    with pytest.raises(ValueError, match="load_best_model_at_end=True would restore weights"):
        trained.train()


@pytest.mark.parametrize(("model", "data"), [(bert, texts), (vit, images)], ids=["bert", "vit"])
def test_a_model_compiles_and_returns_its_own_kind_of_output(model: Any, data: Any) -> None:
    network, batch = model().eval(), data().examples[:3]
    program = rvsm.compile(network, batch, threads=1)
    with torch.no_grad():
        expected = network(batch)
    found = program(batch)
    assert type(found) is type(expected)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
