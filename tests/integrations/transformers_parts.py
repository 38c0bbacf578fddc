"""What the tests of Transformers are made of; test_transformers.py imports it in a fixture, because that is large."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from rvsm.integrations import TransformersCallback
from rvsm.metrics import sparsity

__all__ = ["BertForSequenceClassification", "TransformersCallback", "Watcher", "bert", "images", "saved", "texts"]
__all__ += ["trainer", "vit", "zeros"]


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


def saved(folder: Path, callback: TransformersCallback | None) -> str:
    trained = trainer(folder, bert(), texts(), num_train_epochs=2, save_strategy="steps", save_steps=4)
    if callback is not None:
        callback.add_to(trained)
    trained.train()
    return str(folder / "checkpoint-4")
