"""Folders for the Hub, written and read by the real libraries."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_model
from torch import nn

import rvsm
from networks import perceptron
from rvsm.integrations import save_pretrained


def trained(*, finalized: bool = True) -> tuple[nn.Sequential, rvsm.RVSM]:
    torch.manual_seed(0)
    model, x = perceptron(20, 30, 2), torch.randn(16, 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = rvsm.RVSM(model, "l0", sparsity=0.9, steps=10).attach(optimizer)
    for _ in range(10):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    if finalized:
        sparsifier.finalize()
    return model, sparsifier


def test_a_folder_has_dense_shapes_the_packed_form_and_a_card(tmp_path: Path) -> None:
    model, sparsifier = trained()
    x = torch.randn(4, 20)
    folder = save_pretrained(model, tmp_path / "hub", sparsifier=sparsifier, example_input=x, accuracy=0.912)
    assert model.training
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "model.rvsm", "README.md"}
    again = perceptron(20, 30, 2)
    load_model(again, folder / "model.safetensors")
    assert torch.equal(again[0].weight, model[0].weight)
    program = rvsm.runtime.load(folder / "model.rvsm")
    np.testing.assert_allclose(program(x.numpy()), model(x).detach().numpy(), atol=1e-5)
    card = (folder / "README.md").read_text(encoding="utf-8")
    for part in (
        "# Sequential, 90.00 % zeros",
        "| method | `rvsm` |",
        "| penalty | `L0` |",
        "| budget | `Budget(sparsity=0.9, steps=10",
        "| zeros in all parameters | 85.84 % of 692 |",
        "| accuracy | 0.912 |",
        'rvsm.runtime.load("model.rvsm")',
        "| `2.weight` | 2 × 30 |",
    ):
        assert part in card


def test_a_model_of_transformers_is_read_by_from_pretrained(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra 'transformers' is not installed")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = transformers.ViTForImageClassification(transformers.ViTConfig(image_size=16, patch_size=8, **sizes))
    with torch.no_grad():
        model.vit.layernorm.weight.mul_(2)
        model.classifier.weight[:, ::2] = 0
    save_pretrained(model, tmp_path, accuracy={"top-1": 0.5, "top-5": 1})
    again = transformers.ViTForImageClassification.from_pretrained(tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "from transformers import ViTForImageClassification" in card
    assert "| top-5 | 1 |" in card
    assert "There is no packed form: no example input was given." in card
    assert "| `classifier.weight` | 2 × 16 | 50.00 |" in card


def test_what_the_runtime_cannot_do_is_said_and_an_old_packed_form_goes(tmp_path: Path) -> None:
    model, sparsifier = trained()
    save_pretrained(model, tmp_path, sparsifier=sparsifier, example_input=torch.randn(4, 20))

    class Reading(nn.Module):
        """Returns what a file of the runtime does not have."""

        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: torch.Tensor) -> dict[str, list[torch.Tensor]]:
            return {"logits": [self.net(x)]}

    reason = "the network cannot be saved, because it needs PyTorch for results in a dict"
    with pytest.warns(UserWarning, match=f"saved without its packed form: {reason}"):
        save_pretrained(Reading(), tmp_path, sparsifier=sparsifier, example_input=torch.randn(4, 20))
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "README.md"}
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert f"There is no packed form: {reason}" in card
    assert "| `net.2.weight` | 2 × 30 |" in card


def test_what_is_not_sparse_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    model, sparsifier = trained(finalized=False)
    with pytest.raises(ValueError, match=r"not finalized, so the model is not sparse yet; call finalize\(\)"):
        save_pretrained(model, tmp_path / "hub", sparsifier=sparsifier)
    with pytest.raises(ValueError, match="the model has no zeros"):
        save_pretrained(nn.Linear(3, 3), tmp_path / "hub")
    sparsifier.finalize()
    with pytest.raises(ValueError, match=r"acts on another model: '0.weight' is not a weight of this one"):
        save_pretrained(nn.Linear(3, 3), tmp_path / "hub", sparsifier=sparsifier)
    with pytest.raises(ValueError, match="accuracy must be a number, or numbers by name, but 'accuracy' is 'good'"):
        save_pretrained(model, tmp_path / "hub", accuracy="good")  # type: ignore[arg-type]
    assert not (tmp_path / "hub").exists()


def test_a_card_of_somebody_else_stays(tmp_path: Path) -> None:
    model, sparsifier = trained()
    (tmp_path / "README.md").write_text("my own words", encoding="utf-8")
    with pytest.raises(FileExistsError, match="was not written by rvsm and is kept"):
        save_pretrained(model, tmp_path, sparsifier=sparsifier)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
