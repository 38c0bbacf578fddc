"""Real runs, in seconds, and lines made by hand for what real runs do not show."""

import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rvsm.config import build, read_config
from rvsm.records import Run
from rvsm.train import start

COMMON = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--training.threads", "1"]
KINDS = {
    "dense": ["--method.name", "dense"],
    "l0": ["--method.beta", "1.0", "--penalty.name", "l0", "--penalty.lam", "1e-3"],
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders of finished runs: "dense", "l0", and "l0-s1" with another seed."""
    folder = tmp_path_factory.mktemp("runs")
    data = build.dataset(read_config(flags=["--method.name", "dense"]))
    for kind, seed in [("dense", 0), ("l0", 0), ("l0", 1)]:
        config = read_config(flags=[*COMMON, *KINDS[kind], "--name", kind, "--seed", str(seed)])
        start(config, folder / (f"{kind}-s{seed}" if seed else kind), Console(file=StringIO()), data)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def copy(trained: dict[str, Path], tmp_path: Path) -> Callable[..., Run]:
    """Return what makes a copy of a run, to be changed by a test."""

    def copied(kind: str) -> Run:
        shutil.copytree(trained[kind], tmp_path / "runs" / kind)
        return Run(tmp_path / "runs" / kind)

    return copied
