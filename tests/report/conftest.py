"""Real runs, in seconds: digits, a narrow network, two or three epochs."""

import runpy
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rvsm.config import read_config
from rvsm.data import Dataset
from rvsm.records import Run

look = runpy.run_path(str(Path(__file__).parents[1] / "pages" / "conftest.py"))["look"]

Once = Callable[[str, Callable[[Path], object]], Path]
KINDS = {
    "dense": ["--method.name", "dense"],
    "l0": ["--method.beta", "1.0", "--penalty.name", "l0", "--penalty.lam", "1e-3"],
    "l0-80": ["--penalty.name", "l0", "--budget.sparsity", "0.8"],
    "admm": ["--method.name", "admm", "--method.sparsity", "0.3", "--method.rho", "0.01", "--method.interval", "9"],
    "unvalidated": ["--budget.sparsity", "0.3", "--training.validation", "0"],
}
COMMON = ["--model.width", "8", "--training.epochs", "4", "--training.batch", "256", "--training.threads", "1"]


@pytest.fixture(scope="session")
def trained(once: Once) -> dict[str, Path]:
    """Return folders of finished runs by kind; "l0-80" has seeds 0 and 1, the second as "l0-80-s1"."""
    folder = once("report-runs", train)
    return {run.name: run for run in folder.iterdir()}


def train(folder: Path) -> None:
    from rvsm.config import build
    from rvsm.train import start

    data: Dataset | None = None
    for kind, seed in [*((kind, 0) for kind in KINDS), ("l0-80", 1)]:
        config = read_config(flags=[*COMMON, *KINDS[kind], "--name", kind, "--seed", str(seed)])
        data = data or build.dataset(config)
        start(config, folder / (f"{kind}-s{seed}" if seed else kind), Console(file=StringIO()), data)


@pytest.fixture
def copy(trained: dict[str, Path], tmp_path: Path) -> Callable[[str, str], Run]:
    """Return what makes a copy of a run, to be changed by a test."""

    def copied(kind: str, name: str = "copy") -> Run:
        shutil.copytree(trained[kind], tmp_path / "runs" / name)
        return Run(tmp_path / "runs" / name)

    return copied
