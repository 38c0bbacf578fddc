"""Received files run no code."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rvsm.cli import main
from rvsm.config import read_config
from rvsm.records import Run
from rvsm.train import Trainer

QUICK = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--budget.sparsity", "0.3"]


NET = """
from pathlib import Path
from torch import nn

Path("imported").touch()

def net(channels, classes, hidden: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, hidden), nn.ReLU(), nn.Linear(hidden, classes))
"""


class TestImports:
    """Nothing that a folder or a file names is imported unless the user names it, too."""

    TOML = "[training]\nepochs = 1\nbatch = 256\n[model]\nname = '{}'\n{}\n[budget]\nsparsity = 0.3\n"

    @pytest.fixture(autouse=True)
    def modules(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
        """Return the name of a module in the working directory, which leaves a file when it is imported."""
        monkeypatch.setattr(sys, "path", list(sys.path))
        name = f"net_{abs(hash(tmp_path))}"
        Path(f"{name}.py").write_text(NET)
        return name

    def test_a_file_that_runs_a_program(self, refused: Callable[..., str]) -> None:
        Path("x.toml").write_text(self.TOML.format("os:system", "command = 'touch imported'"))
        for words in (["train", "x.toml"], ["compare", "x.toml"], ["train", "x.toml", "--help"]):
            text = refused(*words)
            assert "'os:system' would be imported and called, which can run any code" in text
            assert "allow it with --allow-import os:system" in text
        assert "os:system" in refused("train", "x.toml", "--allow-import", "os:popen")
        assert not Path("imported").exists()

    def test_a_folder_that_runs_a_program(self, refused: Callable[..., str]) -> None:
        assert main(["train", *QUICK, "--run", "a"]) == 0
        config = Path("a/config.toml")
        config.write_text(
            config.read_text().replace('name = "convnet"', 'name = "os:system"\ncommand = "touch imported"')
        )
        for words in (["pack", "a"], ["bench", "a"], ["bench", "a", "--keep"], ["bench", "a/model.safetensors"]):
            refused(*words)
        assert "a/config.toml: the model 'os:system' would be imported" in refused("pack", "a")
        assert main(["collect", "a", "--into", "lines.jsonl"]) == 0
        for record in ("result.json", "metrics.jsonl"):  # without them the report has no pictures, which take seconds
            Path("a", record).unlink()
        assert main(["report", "a"]) == 0
        assert "allow it with --allow-import os:system" in refused("resume", "a")
        assert "(model.name os:system → convnet, model.command" in refused("train", *QUICK, "--run", "a")
        assert not Path("imported").exists()

    def test_a_model_that_is_named_again(
        self, modules: str, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        net = f"{modules}:net"
        Path("own.toml").write_text(self.TOML.format(net, "hidden = 6"))
        refused("train", "own.toml")
        assert not Path("imported").exists()
        assert main(["train", "own.toml", "--allow-import", net, "--run", "a"]) == 0
        assert main(["train", "own.toml", "--model.name", net, "--run", "b"]) == 0
        assert main(["compare", "own.toml", "--allow-import", net]) == 0
        capsys.readouterr()
        Path("a/result.json").unlink()
        same = ["train", "own.toml", "--allow-import", net, "--run", "a"]
        assert f"continue with: rvsm resume a --allow-import {net}, unless" in refused(*same)
        refused("resume", "a")
        assert main(["resume", "a", "--allow-import", net]) == 0
        assert net in refused("pack", "a")
        assert main(["pack", "a", "--allow-import", net]) == 0

    def test_a_checkpoint_of_another_model(self, refused: Callable[..., str]) -> None:
        assert main(["train", *QUICK, "--run", "a"]) == 0
        config = read_config(flags=QUICK)
        other = {**config.table(), "model": {"name": "os:system", "command": "touch imported"}}
        Path("a/result.json").unlink()
        Run(Path("a")).save(4, {**Trainer(config).state(), "config": other})
        assert "different options: model.name os:system → convnet" in refused("resume", "a")
        assert not Path("imported").exists()
