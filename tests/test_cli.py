import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import rvsm
from rvsm.cli import COMMANDS, main
from rvsm.config import read_config
from rvsm.data import Digits
from rvsm.records import Run, locked
from rvsm.train import Trainer, load_network

QUICK = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--budget.sparsity", "0.8"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RVSM_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that fails, and return its sentence."""

    def go(*words: str) -> str:
        assert main(words) == 1
        captured = capsys.readouterr()
        assert captured.err.startswith("rvsm: ")
        assert captured.err.count("\n") == 1
        assert "Traceback" not in captured.err
        return captured.err.removeprefix("rvsm: ").strip()

    return go


class TestHelp:
    def test_without_arguments(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main([])
        assert ended.value.code == 2
        assert "rvsm COMMAND …" in capsys.readouterr().err

    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_all_commands(self, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main([flag])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        assert all(re.search(rf"^  {name}\b", text, re.MULTILINE) for name in COMMANDS)

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["--version"])
        assert ended.value.code == 0
        assert re.match(r"rvsm \d+\.\d+", capsys.readouterr().out)

    @pytest.mark.parametrize("words", [["train", "--run", ""], ["compare", "--runs", ""], ["resume", ""]])
    def test_an_empty_path_is_not_the_folder_here(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert "expected a path but got an empty text; the folder here is written ." in capsys.readouterr().err

    def test_a_command_that_does_not_exist(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["trian"])
        assert ended.value.code == 2
        assert "train" in capsys.readouterr().err

    def test_train(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", "--help"]) == 0
        text = capsys.readouterr().out
        for key in ("--run", "--name", "--seed", "--training.epochs", "--optimizer.lr", "--penalty.lam"):
            assert key in text
        for key in ("--budget.sparsity", "--data.name", "--model.width", "--augment.crop", "--groups.name"):
            assert key in text
        assert "rvsm train [FILE]" in text

    def test_train_shows_the_options_of_the_flags_entries(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", "--penalty.name", "tl1", "--help"]) == 0
        assert "--penalty.a" in capsys.readouterr().out

    def test_train_shows_the_options_of_a_files_entries(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("x.toml").write_text("[penalty]\nname = 'tl1'\n")
        assert main(["train", "x.toml", "-h"]) == 0
        assert "--penalty.a" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("command", "words"),
        [
            ("compare", ["--seeds", "--runs", "--out", "--section.option"]),
            ("report", ["RUN", "--out"]),
            ("resume", ["RUN"]),
        ],
    )
    def test_others(self, command: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        try:
            assert main([command, "--help"]) == 0
        except SystemExit as ended:
            assert ended.code == 0  # noqa: PT017
        text = capsys.readouterr().out
        assert f"usage: rvsm {command}" in text
        assert all(word in text for word in words)

    @pytest.mark.parametrize("words", [["resume"], ["report"], ["resume", "a", "b"], ["train", "--run"]])
    def test_misuse(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert "usage" in capsys.readouterr().err


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
        assert refused("train", *QUICK, "--training.epochs", "x") == "training.epochs must be a whole number but is 'x'"
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
        Path("a/metrics.jsonl").unlink()
        os.mkfifo("a/metrics.jsonl")
        assert main(["report", "a"]) == 0
        assert "metrics.jsonl is no regular file" in Path("a/report.html").read_text()

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
        assert "say --seeds N instead of --seed" in refused("compare", "--seed", "3", "x.toml")

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
        assert "seed must be a whole number of at most 64 bits" in refused("train", *QUICK, "--seed", str(10**30))


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
            r"^ℓ0 \[a\]: test accuracy of u \d+\.\d\d % with 7\d\.\d\d|8\d\.\d\d % zeros", captured.out, re.MULTILINE
        )
        same = ["train", *QUICK, "--name", "ℓ0 [a]"]
        assert f"{folder} is finished; see it with: rvsm report {folder}" in refused(*same)
        assert "(training.batch 256 → 128)" in refused(*same, "--training.batch", "128")
        assert main(["resume", str(folder)]) == 0  # says the result again
        assert "test accuracy" in capsys.readouterr().out
        (folder / "result.json").unlink()
        assert f"{folder} holds this run, unfinished; go on with: rvsm resume {folder}" in refused(*same)

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
        assert "4 steps: 2 × 2 batches of 128 images, the last of 101; these are few" in text
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


class TestUse:
    @pytest.fixture(autouse=True)
    def trained(self, capsys: pytest.CaptureFixture[str]) -> None:
        images = Digits().load().test
        Path("images").mkdir()
        for number in range(3):
            Image.fromarray(images.images[number, 0].numpy()).save(f"images/{number}.png")
        assert main(["train", *QUICK, "--training.epochs", "4", "--run", "a"]) == 0
        assert main(["pack", "a"]) == 0
        capsys.readouterr()

    def test_evaluate(self, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
        expected = Run(Path("a")).result()["test"]["u"]["accuracy"]
        for source in ("a", "a/model.rvsm"):
            assert main(["evaluate", source, "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert found["images"] == 449
            assert found["accuracy"] == pytest.approx(expected, abs=0.003)
        assert main(["evaluate", "a", "--data.name", "digits"]) == 0
        assert re.match(r"accuracy \d+\.\d\d %, loss \d\.\d+, on 449 test images\n", capsys.readouterr().out)
        assert "nowhere" in refused("evaluate", "a", "--data.name", "folder", "--data.path", "nowhere")

    def test_predict(self, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
        model, result = load_network("a")
        mean, std = (torch.tensor(result[key]).view(-1, 1, 1) for key in ("mean", "std"))
        x = (Digits().load().test.images[:3] / 255 - mean) / std
        best = model(x).softmax(1).max(1)
        files = [f"images/{number}.png" for number in range(3)]
        for source in ("a", "a/model.rvsm"):
            assert main(["predict", source, *files, "--json"]) == 0
            found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert [(one["file"], one["class"]) for one in found] == [
                (file, result["classes"][k]) for file, k in zip(files, best.indices.tolist(), strict=True)
            ]
            assert [one["probability"] for one in found] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert main(["predict", "a", files[0]]) == 0
        assert re.fullmatch(r"\d   *\d+\.\d\d %  images/0\.png\n", capsys.readouterr().out)
        Path("a/model.rvsm").rename("alone.rvsm")
        assert "does not say how images are normalised" in refused("predict", "alone.rvsm", files[0])
        assert main(["predict", "alone.rvsm", files[0], "--run", "a"]) == 0
        assert "none.png does not exist" in refused("predict", "a", "none.png")
        Path("broken.png").write_bytes(b"x")
        assert "broken.png cannot be read as an image" in refused("predict", "a", "broken.png")


class TestWeights:
    def test_of_a_run_or_a_file(self, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
        dense = ["--method.name", "dense", "--model.width", "4", "--training.batch", "256", "--training.epochs"]
        assert main(["train", *dense, "3", "--run", "dense"]) == 0
        expected = Run(Path("dense")).weights()
        slow = [*dense, "1", "--optimizer.lr", "1e-12"]
        for source in ("dense", "dense/model.safetensors"):
            run = f"from-{Path(source).name}"
            assert main(["train", *slow, "--model.weights", source, "--run", run]) == 0
            found = Run(Path(run)).weights()
            assert all(torch.allclose(found[k], w, atol=1e-6) for k, w in expected.items() if k.endswith("weight"))
            assert Path(Run(Path(run)).config()["model"]["weights"]) == Path(source).resolve()
        assert main(["resume", "from-dense"]) == 0
        assert main(["evaluate", "from-dense"]) == 0
        told = "are not those of the network: of another shape: 0.weight [4, 1, 3, 3] instead of [8, 1, 3, 3]"
        assert told in refused("train", *slow, "--model.width", "8", "--model.weights", "dense", "--run", "b")
        text = refused("train", *slow, "--model.name", "lenet5", "--model.weights", "dense", "--run", "b")
        assert "missing: " in text
        assert "unexpected: " in text
        assert "there is no file" in refused("train", *slow, "--model.weights", "nothing", "--run", "b")
        torch.save(expected, "x.pt")
        assert "others are pickled" in refused("train", *slow, "--model.weights", "x.pt", "--run", "b")
        assert not Path("b").exists()


NET = """
from pathlib import Path
from torch import nn

Path("imported").touch()

def net(channels, classes, hidden: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, hidden), nn.ReLU(), nn.Linear(hidden, classes))
"""


class TestImports:
    """Nothing that a folder or a file names is imported unless the user names it, too."""

    TOML = "[training]\nepochs = 1\nbatch = 256\n[model]\nname = '{}'\n{}\n[budget]\nsparsity = 0.5\n"

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
            assert "'os:system' would be imported and called, which can run any program" in text
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
        assert main(["report", "a"]) == 0
        Path("a/result.json").unlink()
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
        assert f"go on with: rvsm resume a --allow-import {net}, unless" in refused(*same)
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
        assert "other options: model.name os:system → convnet" in refused("resume", "a")
        assert not Path("imported").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop(number: signal.Signals, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    long = ["--training.epochs", "50", "--training.evaluate_every", "25"]
    command = [sys.executable, "-m", "rvsm.cli", "train", "--run", str(folder), *QUICK, *long]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    while process.poll() is None and not list(folder.glob("checkpoints/step-*")):
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    found = re.fullmatch(r"rvsm: stopped at step (\d+) of 200; go on with: rvsm (resume .*)\n", errors)
    assert found, errors
    state, complaints = Run(folder).newest()
    assert state is not None
    assert (state["step"], complaints) == (int(found[1]), [])
    if number == signal.SIGINT:
        assert main(found[2].split()) == 0
        assert f"going on from step {found[1]} of 200" in capfd.readouterr().out
        assert Run(folder).status == "finished"


def test_two_at_once(tmp_path: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "--run", "a", *QUICK])
    capsys.readouterr()
    Path("a/result.json").unlink()
    with locked(Path("a")):
        assert refused("resume", "a") == "another process is training in a; wait for it, or stop it"


def test_a_package_that_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rvsm.config", None)
    assert main(["train", "--seed", "1"]) == 1
    assert "which is not installed: pip install 'rvsm[train]'" in capsys.readouterr().err
