"""Networks that are evaluated, asked, and begun from."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from rvsm.cli import main
from rvsm.data import Digits
from rvsm.records import Run
from rvsm.train import load_network

QUICK = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--budget.sparsity", "0.3"]


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
        assert "holds neither the normalisation of the images nor" in refused("predict", "alone.rvsm", files[0])
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
        assert "other formats are pickled" in refused("train", *slow, "--model.weights", "x.pt", "--run", "b")
        assert not Path("b").exists()
