"""Whatever goes wrong is one sentence."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import rvsm
from rvsm.cli import COMMANDS, main

QUICK = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--budget.sparsity", "0.3"]


class TestSentences:
    def test_names_of_files_that_are_not_utf_8(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(COMMANDS, "info", (lambda words: print(words[0]) or 0, ""))
        assert main(["info", "caf\udce9"]) == 0
        assert capsys.readouterr().out == "caf\\udce9\n"

    @pytest.mark.parametrize(("error", "told"), [("Unable to allocate 3 TiB", "3 TiB"), ("", "smaller sizes")])
    def test_memory(self, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, error: str, told: str) -> None:
        def fail(_: list[str]) -> int:
            raise MemoryError(error)

        monkeypatch.setitem(COMMANDS, "info", (fail, ""))
        text = refused("info")
        assert text.startswith("there is not enough memory: ")
        assert told in text

    def test_options(self, refused: Callable[..., str]) -> None:
        assert "did you mean 'training.epochs'?" in refused("train", "--training.epoch", "3")
        assert refused("train", *QUICK, "--training.epochs", "x") == "training.epochs must be an integer but is 'x'"
        assert "how many zeros" in refused("train")
        assert "did you mean 'lenet5'?" in refused("train", *QUICK, "--model.name", "lenet")

    def test_files(self, refused: Callable[..., str], tmp_path: Path) -> None:
        assert refused("train", "nope.toml").startswith("there is no file nope.toml; give a TOML file")
        assert "is a folder; give a TOML file, or use rvsm resume" in refused("train", ".")
        Path("bad.toml").write_bytes(b"\xff\x00")
        assert refused("train", "bad.toml").startswith("bad.toml is not a TOML file: ")
        assert "train takes one file but got 2; use rvsm compare for several" in refused("train", "a.toml", "b.toml")
        assert refused("compare").startswith("compare needs at least one file")
        assert "--seeds must be at least 1 but is 0" in refused("compare", "x.toml", "--seeds", "0")
        if os.geteuid() == 0:
            return
        Path("secret.toml").write_text("")
        Path("secret.toml").chmod(0)
        assert "secret.toml" in refused("train", "secret.toml")

    @pytest.mark.parametrize("depth", [40, 300, 100_000])
    def test_deep_nesting(self, refused: Callable[..., str], depth: int) -> None:
        Path("deep.toml").write_text(f"[method]\noverrides = {'[' * depth}{']' * depth}\n[budget]\nsparsity = 0.5")
        assert refused("train", "deep.toml").startswith("deep.toml")

    def test_metrics_that_cannot_be_read(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", *QUICK, "--run", "a"]) == 0
        Path("a/result.json").unlink()  # its pictures take seconds
        Path("a/metrics.jsonl").unlink()
        os.mkfifo("a/metrics.jsonl")
        assert main(["report", "a"]) == 0
        assert "metrics.jsonl is not a regular file" in Path("a/report.html").read_text()

    def test_far_too_many_threads(self, refused: Callable[..., str]) -> None:
        told = "for each core of this machine, but is 1000000"
        assert told in refused("train", *QUICK, "--training.threads", "1000000")
        assert not Path("runs").exists()
        source = ["bench", "rvsm.models:convnet", "--input", "1,8,8"]
        assert told in refused(*source, "--threads", "1000000")

    def test_names_cannot_move_the_cursor(
        self, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        layer = torch.nn.Sequential()
        layer.add_module("\x1b[2J\x07", torch.nn.Conv2d(1, 2, 3))
        rvsm.compile(layer.eval(), torch.zeros(1, 1, 8, 8)).save("x.rvsm")
        assert main(["info", "x.rvsm"]) == 0
        assert main(["train", *QUICK, "--name", "a\x1b[2J", "--run", "a"]) == 0
        captured = capsys.readouterr()
        assert "\\x1b[2J\\x07" in captured.out
        assert "a\\x1b[2J: test accuracy" in captured.out
        assert "\x1b" not in captured.out + captured.err
        Path("photos/\x1b[2J").mkdir(parents=True)
        text = refused("train", *QUICK, "--data.name", "folder", "--data.path", "photos")
        assert "\\x1b[2J has no images" in text
        Path("about.toml").write_text('name = "\\u001b[2J"\n[budget]\nsparsity = 2.0')
        assert main(["compare", "about.toml", "--model.width", "4", "--training.epochs", "x"]) == 1
        assert "\x1b" not in capsys.readouterr().err

    def test_a_file_after_the_flags(self, refused: Callable[..., str]) -> None:
        assert "there is no file x.toml" in refused("train", "--training.epochs", "3", "x.toml")
        assert "use --seeds N instead of --seed" in refused("compare", "--seed", "3", "x.toml")

    def test_runs(self, refused: Callable[..., str]) -> None:
        assert refused("resume", "nowhere").startswith(
            "nowhere is not a run's folder: it does not exist; give a folder"
        )
        assert refused("report", ".").startswith(". is not a run's folder: it has no config.toml")

    def test_data(self, refused: Callable[..., str]) -> None:
        assert "nothing-there" in refused("train", *QUICK, "--data.name", "folder", "--data.path", "nothing-there")

    def test_models(self, refused: Callable[..., str]) -> None:
        flags = ["--budget.sparsity", "0.5", "--model.name"]
        assert "there is no module 'nets_nowhere'" in refused("train", *flags, "nets_nowhere:net")
        text = refused("train", *flags, "torch.nn:Linear", "--model.in_features", "3", "--model.out_features", "3")
        assert "cannot take images of shape [1, 8, 8]" in text
        assert not Path("runs").exists()

    def test_seeds_too_large(self, refused: Callable[..., str]) -> None:
        assert "seed must be an integer of at most 64 bits" in refused("train", *QUICK, "--seed", str(10**30))


def test_a_package_that_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "rvsm: demo needs rich, which is not installed: pip install 'rvsm[train]'\n"
