import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rvsm.config import read_config
from rvsm.data import Dataset
from rvsm.records import Run
from rvsm.train import DivergenceError, Trainer, start

OVERFLOW = ("--optimizer.lr", "3e38", "--optimizer.weight_decay", "1e20")


def diverging(folder: Path, data: Dataset, *flags: str, method: Sequence[str] = ("--method.name", "dense")) -> str:
    words = [*method, "--model.width", "4", "--training.epochs", "4", *flags]
    with pytest.raises(DivergenceError) as error:
        start(read_config(flags=words), folder, Console(file=io.StringIO()), data)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_step_cause_and_what_to_do(tmp_path: Path, digits: Dataset) -> None:
    text = diverging(tmp_path / "run", digits, "--optimizer.lr", "1e30", "--training.batch", "128")
    assert re.match(r"the loss became (nan|inf) at step 1 \(epoch 0\.11\), with a learning rate of \S+\.", text)
    assert "The likely cause: " in text
    assert "the steps are too large; try --optimizer.lr 1e+29 or --training.clip 1 or --schedule.warmup 0.05." in text
    assert text.endswith("There is no checkpoint yet; start again with different options in a new folder.")


def test_advice_that_was_followed_is_not_repeated(tmp_path: Path, digits: Dataset) -> None:
    flags = ["--optimizer.lr", "1e38", "--training.clip", "1e30", "--schedule.warmup", "0.1"]
    text = diverging(tmp_path / "run", digits, *flags)
    assert "try --optimizer.lr 1e+37." in text


def test_weights_that_overflowed_are_named(tmp_path: Path, digits: Dataset) -> None:
    text = diverging(
        tmp_path / "run",
        digits,
        *OVERFLOW,
        "--training.batch",
        "128",
    )
    assert re.search(r"the weights of '[\w.]+' overflowed in an earlier step", text)


def test_a_diverged_network_is_not_called_good(tmp_path: Path, digits: Dataset) -> None:
    # One step in an epoch: the weights overflow just before a checkpoint is due.
    text = diverging(
        tmp_path / "run",
        digits,
        *OVERFLOW,
        "--training.batch",
        "5000",
    )
    assert re.match(
        r"after step 1 \(epoch 1\.00\) the weights of '[\w.]+' are not finite: the steps are too large", text
    )
    assert "There is no checkpoint yet" in text
    assert Run(tmp_path / "run").checkpoints() == []


def test_the_last_good_checkpoint(tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer.train_step

    def late(self: Trainer, x: torch.Tensor, y: torch.Tensor) -> None:
        if self.step == 11:
            with torch.no_grad():
                self.model[0].weight[0] = float("inf")
        step(self, x, y)

    monkeypatch.setattr(Trainer, "train_step", late)
    text = diverging(tmp_path / "run", digits, "--training.batch", "250")
    assert "at step 11 (epoch 2.75)" in text
    assert "the weights of '0.weight' overflowed" in text
    kept = tmp_path / "run" / "checkpoints" / "step-000000008.safetensors"
    assert f"The last good checkpoint is {kept}; start again with different options in a new folder." in text
    assert kept.exists()


def test_images_that_are_not_finite(small: Any, digits: Dataset) -> None:
    trainer = Trainer(small(), digits)
    x, y = next(trainer.batches.epoch(0))
    x[0, 0, 0, 0] = float("nan")
    with pytest.raises(DivergenceError, match="the images of this batch contain values that are not finite"):
        trainer.train_step(x, y)


def test_a_run_that_diverges_sparsely_is_a_sentence_too(tmp_path: Path, digits: Dataset) -> None:
    config = read_config(flags=["--budget.sparsity", "0.4", "--model.width", "4", "--training.epochs", "5"])
    config = replace(config, optimizer=replace(config.optimizer, options={**config.optimizer.options, "lr": 1e30}))
    with pytest.raises(DivergenceError) as error:
        start(config, tmp_path / "run", Console(file=io.StringIO()), digits)
    assert "\n" not in str(error.value)


def test_the_last_step_of_all(tmp_path: Path, digits: Dataset) -> None:
    text = diverging(tmp_path / "run", digits, *OVERFLOW, "--training.batch", "5000", "--training.epochs", "1")
    assert text.startswith("after step 1 (epoch 1.00) the weights of")
    assert Run(tmp_path / "run").result() is None


def test_the_last_step_of_an_epoch_of_a_sparse_run(tmp_path: Path, digits: Dataset) -> None:
    target = ("--budget.sparsity", "0.5", "--method.beta", "1e-45")  # so small that nothing is pulled
    text = diverging(tmp_path / "run", digits, *OVERFLOW, "--training.batch", "5000", method=target)
    assert text.startswith("after step 1 (epoch 1.00) the weights of")
