"""Trainings that are started, stopped and resumed."""

import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import commands
from processes import Process
from rvsm.cli import main
from rvsm.records import Run, locked

QUICK = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--budget.sparsity", "0.3"]


class TestRuns:
    def test_train_then_conflicts_then_resume(
        self, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["train", *QUICK, "--name", "ℓ0 [a]"]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        assert "epoch 2/2" in captured.out
        found = re.search(r"^the run is in (\S+); see it with: rvsm report \1$", captured.out, re.MULTILINE)
        assert found
        folder = Path(found[1])
        assert Run(folder).status == "finished"
        assert re.search(
            r"^ℓ0 \[a\]: test accuracy of u \d+\.\d\d % with (29|30)\.\d\d % zeros", captured.out, re.MULTILINE
        )
        same = ["train", *QUICK, "--name", "ℓ0 [a]"]
        assert f"{folder} is finished; see it with: rvsm report {folder}" in refused(*same)
        assert "(training.batch 256 → 128)" in refused(*same, "--training.batch", "128")
        assert main(["resume", str(folder)]) == 0  # says the result again
        assert "test accuracy" in capsys.readouterr().out
        (folder / "result.json").unlink()
        assert f"{folder} holds this run, unfinished; continue with: rvsm resume {folder}" in refused(*same)

    def test_few_images(self, capsys: pytest.CaptureFixture[str]) -> None:
        draw = np.random.default_rng(0)
        for kind in ("cat", "dog"):
            Path("photos", kind).mkdir(parents=True)
            for number in range(150):
                Image.fromarray(draw.integers(0, 255, (8, 8), dtype=np.uint8)).save(f"photos/{kind}/{number}.png")
        data = ["--data.name", "folder", "--data.path", "photos", "--data.channels", "1"]
        small = ["--model.width", "2", "--budget.sparsity", "0.5", "--training.epochs", "2"]
        assert main(["train", *data, *small]) == 0
        text = capsys.readouterr().out
        assert "4 steps: 2 × 2 batches of 128 images, the last of 101; this is a small number" in text
        assert "try more --training.epochs, or a smaller --training.batch" in text
        assert Run(Path("runs/run-s0")).result()["steps"] == 4

    def test_seeds_have_folders_of_their_own(self, capsys: pytest.CaptureFixture[str]) -> None:
        for seed in ("0", "1"):
            assert main(["train", *QUICK, "--seed", seed]) == 0
        weights = [Run(folder).weights()["0.weight"] for folder in sorted(Path("runs").iterdir())]
        assert len(weights) == 2
        assert not torch.equal(*weights)

    def test_a_folder_of_ones_own(self, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", "--run", "deep/er", *QUICK]) == 0
        assert Run(Path("deep/er")).status == "finished"
        assert "is a file; give a folder for the run" in refused("train", "--run", "deep/er/result.json", *QUICK)

    def test_a_file_and_flags(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("mine.toml").write_text(
            "[training]\nepochs = 1\nbatch = 256\n[model]\nwidth = 4\n[budget]\nsparsity = 0.5"
        )
        assert main(["train", "mine.toml", "--training.epochs=2", "--budget.sparsity", "0.6"]) == 0
        run = Run(Path("runs/mine-s0"))
        assert run.config()["training"]["epochs"] == 2
        assert run.result() is not None
        assert run.config()["budget"]["sparsity"] == 0.6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop(number: signal.Signals, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    words = ["train", "--run", str(folder), *QUICK]
    ended = Process(partial(commands.train, words, within="train_step", kill_at=99, number=number)).ended()
    assert ended.status == 130
    found = re.search(r"\nrvsm: stopped at step (\d+) of 8; continue with: rvsm (resume .*)\n$", ended.printed)
    assert found, ended
    state, complaints = Run(folder).newest()
    assert state is not None
    assert (state["step"], complaints) == (int(found[1]), [])
    if number == signal.SIGINT:
        assert main(found[2].split()) == 0
        assert f"continuing from step {found[1]} of 8" in capfd.readouterr().out
        assert Run(folder).status == "finished"


def test_two_at_once(tmp_path: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "--run", "a", *QUICK])
    capsys.readouterr()
    Path("a/result.json").unlink()
    with locked(Path("a")):
        assert refused("resume", "a") == "another process is training in a; wait for it, or stop it"
