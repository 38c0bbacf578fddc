"""Every file of experiments/ can be read, and what it describes can be made.

Those that name a method of another distribution's, or of the paper's room, need it to be installed.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from rvsm.config import Config, build, read_config
from rvsm.config.sections import CHOICES
from rvsm.config.settings import of_file
from rvsm.runtime.kernels.jit import machine
from rvsm.timing import Curve, LayerTimes, Profile

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"


def is_known(file: Path) -> bool:
    """Return whether the method that a file names is installed."""
    said = {setting.key: setting.value for setting in of_file(file)}
    return said.get("method.name", "rvsm") in CHOICES["method"].entries


FILES = sorted(filter(is_known, EXPERIMENTS.rglob("*.toml")))
IMAGES = {"fashion-mnist": (1, 28), "cifar10": (3, 32), "folder": (3, 32)}
"""Channels and size of the images."""


def times_of(config: Config, model: nn.Module) -> Profile | None:
    """Return times for a target that is a speed: to measure them takes long, and needs an idle machine."""
    if config.budget is None or config.budget["speedup"] is None:
        return None
    curve = Curve((0.0, 1.0), (1e-6, 1e-3))
    weights = {name: w.shape for name, w in model.named_parameters() if w.ndim > 1}
    layers = {name: LayerTimes(tuple(shape), "element", curve) for name, shape in weights.items()}
    return Profile(machine().name, 64, 2, ((3, 32, 32),), 1e-5, layers)


FINGERPRINTS = json.loads((ROOT / "tests/compatibility/version-0.1/fingerprints.json").read_text("utf-8"))
"""Of each file of the experiments and of the demo, in version 0.1, in which files had no bases."""


@pytest.mark.parametrize("file", [file for file in FINGERPRINTS if is_known(ROOT / file)])
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
    method = build.method(config, model, steps, images, times_of(config, model))
    if config.method.name == "dense":
        assert method is None
    else:
        assert method is not None
        assert method.attach(optimizer).name == config.method.name
