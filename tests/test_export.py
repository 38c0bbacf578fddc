"""ONNX: what is written computes the same in ONNX Runtime."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rvsm.export import to_onnx

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def network() -> nn.Sequential:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )
    model[0].weight.data *= torch.rand_like(model[0].weight) > 0.5
    return model


def test_the_file_computes_what_the_model_does(tmp_path: Path) -> None:
    import onnxruntime

    model = network().eval()
    path = tmp_path / "model.onnx"
    difference = to_onnx(model, torch.zeros(1, 1, 8, 8), path)
    assert difference is not None
    assert difference < 1e-5
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = torch.randn(5, 1, 8, 8)
    with torch.inference_mode():
        torch.testing.assert_close(torch.from_numpy(session.run(None, {"input_0": x.numpy()})[0]), model(x))
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


class Fickle(nn.Module):
    """Another result at each call, which no file can have."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_a_file_that_differs_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"in ONNX Runtime must agree to 0.0001 but differ by .*; nothing was written"):
        to_onnx(Fickle().eval(), torch.ones(2, 3), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


class Powers(nn.Module):
    """Two results in a list; the second is not a number where a root of something negative is asked for."""

    def __init__(self, power: float) -> None:
        super().__init__()
        self.power = power

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x + 1, x**self.power]


def test_a_list_of_results_that_are_numbers_is_written_and_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(ValueError, match="but differ by nan; nothing was written"):
        to_onnx(Powers(0.5).eval(), torch.ones(2, 3), path)
    difference = to_onnx(Powers(2.0).eval(), torch.ones(2, 3), path)
    assert difference is not None
    assert difference < 1e-5


class Tokens(nn.Module):
    """Whole numbers in; floats, whole numbers and truths out, in a table, with an input that does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(11, 4), nn.Linear(20, 3)

    def forward(self, words: torch.Tensor, unused: torch.Tensor) -> dict[str, object]:
        scores = self.head(self.words(words).flatten(1))
        return {"scores": scores, "others": (scores.argmax(1), scores > 0), "loss": None}


@pytest.mark.parametrize("batch", [1, 4])
def test_networks_of_tokens_with_results_of_any_kind(batch: int, tmp_path: Path) -> None:
    examples = torch.randint(0, 11, (batch, 5)), torch.zeros(batch, 2)
    difference = to_onnx(Tokens().eval(), examples, tmp_path / "model.onnx")
    assert difference is not None
    assert difference < 1e-5
    assert (tmp_path / "model.onnx").is_file()


def test_examples_that_are_no_batches_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="must be a tensor, or a tuple of tensors"):
        to_onnx(network().eval(), torch.tensor(1.0), tmp_path / "model.onnx")


def test_a_model_in_train_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"in train mode \(the model itself\); call model\.eval\(\) first"):
        to_onnx(network(), torch.zeros(1, 1, 8, 8), tmp_path / "model.onnx")


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra_the_command_that_installs_it_is_said(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not there
    with pytest.raises(ImportError, match=rf"to_onnx needs {missing}, .*pip install 'rvsm\[onnx\]'"):
        to_onnx(network().eval(), torch.zeros(1, 1, 8, 8), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
