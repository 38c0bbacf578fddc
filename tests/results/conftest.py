"""Real runs, in seconds, and lines made by hand for what real runs do not show."""

import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rvsm.config import build, read_config
from rvsm.records import Run
from rvsm.results.experiments import Experiment, grouped
from rvsm.results.reading import summary_of
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


@pytest.fixture(scope="session")
def line() -> Callable[..., dict[str, Any]]:
    """Return what makes a line of results by hand."""

    def made(name: str, accuracy: float = 0.9, sparsity: float = 0.0, *, seed: int = 0, **other: Any) -> dict[str, Any]:
        network, _, rest = name.partition("-")
        words = rest.split("-")
        method = next(
            (m for m in ("admm", "magnitude", "rvsm") if m in words), "rvsm" if "vgg16-l" in name else "dense"
        )
        method = "rvsm" if "tl1" in words else method
        w = {"accuracy": accuracy, "loss": 0.4}
        return {
            "format": 1,
            "name": name,
            "config": "0123abcd",
            "seed": seed,
            "options": {
                "data": {"name": "cifar10"},
                "model": {"name": network, "width": 0.25},
                "training": {"epochs": 2, "batch": 128},
                "method": {"name": f"{method}{'-published' * ('published' in words)}"},
            },
            "epochs": 2,
            "steps": 10,
            "minutes": 30.0,
            "images_per_second": 500.0,
            "test": {"w": w, "u": dict(w)},
            "sparsity": sparsity,
            "sparsity_of_all": sparsity,
            "multiplications_saved": sparsity,
            "weights": 1000,
            "parameters": 1100,
            "nonzeros": round(1100 * (1 - sparsity)),
            "layers": {"0.weight": {"shape": [4, 3, 3, 3], "density": 1 - sparsity}},
            "channel_norms": {"w": {"0.weight": [1.0, 0.5, 0.001, 0.2]}},
            "curve": {"epoch": [1, 2], "w_loss": [1.0, 0.5], "u_loss": [1.5, 0.5]},
            "about": {
                "machine": "a processor",
                "threads": 1,
                "precision": "float32",
                "versions": {"torch": "2.13"},
            },
            **other,
        }

    return made


@pytest.fixture(scope="session")
def experiments(line: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Experiment]]:
    """Return what makes experiments of names, each with arguments of `line`, or with a list of lines."""

    def made(**named: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Experiment]:
        lines = []
        for key, given in named.items():
            name = key.replace("_", "-")
            lines += [line(name, **one) for one in ([given] if isinstance(given, dict) else given)]
        return grouped(map(summary_of, lines))

    return made
