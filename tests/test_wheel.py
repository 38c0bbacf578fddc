"""The wheel, installed into an empty environment: packed networks run there without PyTorch."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from importlib.metadata import PathDistribution
from pathlib import Path

import numpy as np
import pytest

from rvsm.inference import images_of
from rvsm.records import Run

ROOT = Path(__file__).parents[1]
FINISHED = ROOT / "tests" / "compatibility" / "version-0.1" / "finished"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def call(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where nothing of the checkout can be imported."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def succeed(command: list[str | Path], folder: Path) -> str:
    done = call(command, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Installed:
    """The environment in a folder, with the wheel that pip builds of a copy of the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "venv" / "bin"

    @property
    def about(self) -> Path:
        (found,) = self.folder.glob("venv/lib/python*/site-packages/rvsm-*.dist-info")
        return found

    def fill(self) -> None:
        """Make the environment, build the wheel and install it."""
        folder, checkout = self.folder, self.folder / "checkout"
        shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, checkout)
        venv.create(folder / "venv")
        into = [*PIP, "--python", self.bin / "python", "install", "--quiet", "--no-compile"]
        done = call([*into, "--constraint", ROOT / "constraints.txt", checkout], folder)
        if done.returncode:
            # Nobody pins setuptools, so that only a missing registry is a reason not to get it.
            probe = call([*PIP, "download", "--quiet", "--retries", "0", "--no-deps", "setuptools>=77"], folder)
            if probe.returncode and "CI" not in os.environ:
                pytest.skip(f"pip cannot download: {(probe.stderr.splitlines() or ['no reason given'])[-1]}")
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def installed(once: Callable[[str, Callable[[Path], object]], Path]) -> Installed:
    return Installed(once("wheel", lambda folder: Installed(folder).fill()))


def test_the_wheel_has_every_file_of_the_package(installed: Installed) -> None:
    files = {path for path in (ROOT / "src" / "rvsm").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    names = {path.relative_to(ROOT / "src").as_posix() for path in files}
    packed = {path.as_posix() for path in PathDistribution(installed.about).files or ()}
    assert {name for name in packed if name.startswith("rvsm/")} == names
    assert {name.split("/")[0] for name in packed - names} == {"..", installed.about.name}, "the command, and no more"
    assert {"rvsm/py.typed", "rvsm/pages/templates/page.html"} <= names
    assert any(name.startswith("rvsm/demo/rows/") for name in names)


def test_three_libraries_come_with_it(installed: Installed, tmp_path: Path) -> None:
    code = "from importlib.metadata import distributions; print(*sorted(d.name for d in distributions()))"
    assert succeed([installed.bin / "python", "-c", code], tmp_path) == "llvmlite numpy rvsm safetensors\n"
    needed = PathDistribution(installed.about).requires or []
    assert [line for line in needed if line.startswith("torch>")] == ['torch>=2.6; extra == "torch"']


def test_the_example_runs_a_packed_network(installed: Installed, tmp_path: Path) -> None:
    run = Run(FINISHED)
    result = json.loads((FINISHED / "result.json").read_text("utf-8"))
    test = images_of(run)
    mean, std = (np.array(result[key], np.float32).reshape(-1, 1, 1) for key in ("mean", "std"))
    images = (test.images.numpy().astype(np.float32) / 255 - mean) / std
    np.savez(tmp_path / "digits.npz", images=images, labels=test.labels.numpy())
    example = ROOT / "examples" / "run_without_torch.py"
    told = succeed([installed.bin / "python", example, FINISHED / "model.rvsm", "digits.npz"], tmp_path)
    found = re.search(r"accuracy: (.+)%; torch is loaded: False", told)
    assert found
    assert float(found[1]) == pytest.approx(100 * result["test"]["u"]["accuracy"], abs=0.3)  # one of 449 images


def test_the_command_says_what_is_in_a_file(installed: Installed, tmp_path: Path) -> None:
    assert "takes 1×8×8, gives 10" in succeed([installed.bin / "rvsm", "info", FINISHED / "model.rvsm"], tmp_path)


def test_what_needs_torch_says_so(installed: Installed, tmp_path: Path) -> None:
    trained = call([installed.bin / "rvsm", "train"], tmp_path)  # which may miss another library first
    assert trained.returncode == 1
    assert re.fullmatch(r"rvsm: train needs \w+, which is not installed: pip install 'rvsm\[train\]'\n", trained.stderr)
    imported = call([installed.bin / "python", "-c", "from rvsm import RVSM"], tmp_path)
    last = "rvsm.RVSM needs torch, which is not installed: pip install 'rvsm[torch]'"
    assert imported.stderr.splitlines()[-1] == f"rvsm.extras.MissingLibraryError: {last}"
