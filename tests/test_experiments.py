"""Every file of experiments/ can be read, and what it describes can be made."""

import json
from pathlib import Path

import pytest
import torch

from rvsm.config import build, read_config

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"
FILES = sorted(EXPERIMENTS.rglob("*.toml"))
PAPER = sorted((EXPERIMENTS / "paper").glob("*.toml"))
IMAGES = {"fashion-mnist": (1, 28), "cifar10": (3, 32), "folder": (3, 32)}
"""Channels and size of the images."""
FINGERPRINTS = json.loads((ROOT / "tests/compatibility/version-0.1/fingerprints.json").read_text("utf-8"))
"""Of each file of the experiments and of the demo, in version 0.1, in which files had no bases."""


@pytest.mark.parametrize("file", FINGERPRINTS)
def test_a_file_is_the_training_that_it_was(file: str) -> None:
    assert read_config(ROOT / file).fingerprint() == FINGERPRINTS[file], "results/*.jsonl are found by it"


@pytest.mark.filterwarnings("ignore:1 of the selected weights are frozen.*whiten")  # of the fast network
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(EXPERIMENTS)))
def test_reads_and_builds(file: Path) -> None:
    config = read_config(file)
    assert config.name == file.stem
    assert file.read_text(encoding="utf-8").startswith("# "), "a file begins with what it is"
    channels, size = IMAGES[config.data.name]
    model = build.network(config, channels=channels, classes=10, size=size)
    images = torch.zeros(2, channels, size, size)
    assert model.eval()(images).shape == (2, 10)
    optimizer = build.optimizer(config).build(model.parameters())
    steps = config.training.epochs * 390
    assert 0 < build.schedule(config).factor(0.5) <= 1
    assert build.augmentations(config) or not any((config.augment.crop, config.augment.flip, config.augment.cutout))
    method = build.method(config, model, steps, images)
    if config.method.name == "dense":
        assert method is None
    else:
        assert method is not None
        assert method.attach(optimizer).name == config.method.name


def test_the_files_of_the_paper_differ_in_their_rows_only() -> None:
    """The same network, data and course of training in each table; and the numbers that the paper gives."""
    for network, files in (("vgg16", 5), ("resnet18", 5)):
        tables = [read_config(file).table() for file in PAPER if file.stem.startswith(network)]
        assert len(tables) == files
        for table in tables:
            for own in ("name", "method", "penalty", "groups"):
                table.pop(own, None)
            assert table == tables[0]
            assert table["model"] == {"name": network, "width": 1.0}
            assert (table["training"]["epochs"], table["training"]["validation"]) == (200, 0.0)
            assert table["schedule"]["drops"] == [0.4, 0.6, 0.8]


@pytest.mark.parametrize("row", ["vgg16-l0", "resnet18-rvsm-l0", "resnet18-admm"])
def test_a_published_row_has_the_numbers_of_the_papers_row(row: str) -> None:
    paper, published = (read_config(EXPERIMENTS / "paper" / f"{row}{end}.toml") for end in ("", "-published"))
    assert published.penalty == paper.penalty
    assert published.method.name == f"{paper.method.name}-published"
    for option, value in published.method.options.items():
        assert paper.method.options[option] == value, option
