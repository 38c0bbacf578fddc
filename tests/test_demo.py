"""The demo, short, with everything in it real."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rvsm.bench import OURS
from rvsm.cli import main
from rvsm.demo import BASELINES, configs, demo
from rvsm.records import Run, folder_of
from rvsm.train import run_all

EPOCHS = 2
BEFORE = 4


@pytest.fixture
def shown(once: Callable[[str, Callable[[Path], object]], Path], tmp_path: Path) -> Path:
    """Return a copy of the demo's folder after a short training; ``printed`` is what it printed.

    Some runs were there before: one with speeds of ``rvsm bench --keep``, the others with speeds of the demo.
    """

    def run(folder: Path) -> None:
        console = Console(file=io.StringIO(), width=120)
        there = configs(epochs=EPOCHS)[:BEFORE]
        benched, *finished = run_all(there, seeds=[0], runs=folder, console=console, brief=True)
        benched.save_runtime(timed(batch=1))
        for one in finished:
            one.save_runtime(timed(batch=64))
        assert demo(console, out=folder, epochs=EPOCHS, jobs=1).is_file()
        (folder / "printed").write_text(console.file.getvalue(), encoding="utf-8")

    return Path(shutil.copytree(once("demo", run), tmp_path / "demo"))


def timed(batch: int) -> dict[str, Any]:
    engines = [
        {"engine": engine, "precision": "float32", "batch": batch, "milliseconds": milliseconds}
        for engine, milliseconds in zip((*BASELINES, OURS), (1000.0, 2000.0, 1.0), strict=True)
    ]
    return {"file_bytes": 131_000, "batch": batch, "threads": 1, "speedup": 1000.0, "engines": engines}


def test_the_demo_trains_every_method_prints_the_table_and_writes_the_page(shown: Path) -> None:
    printed = (shown / "printed").read_text(encoding="utf-8")
    results = {}
    for config in configs():
        assert config.name in printed
        results[config.name] = Run(folder_of(shown, config.name, 0)).result()
    accuracies = {name: result["test"]["u"]["accuracy"] for name, result in results.items()}
    hard = {"ADMM, target 90 %", "RVSM ℓ0, target 99 %", "Magnitude, target 99 %"}  # in two epochs
    assert all(accuracy > (0.4 if name in hard else 0.75) for name, accuracy in accuracies.items()), accuracies
    zeros = {name: result["sparsity"] for name, result in results.items()}
    assert zeros["SGD"] == 0
    assert 0 < zeros["RVSM ℓ1"] < zeros["RVSM Tℓ1"] < zeros["RVSM ℓ0"]
    for sparsity, methods in ((0.9, ("RVSM ℓ0", "Magnitude", "ADMM")), (0.99, ("RVSM ℓ0", "Magnitude"))):
        for method in methods:
            assert zeros[f"{method}, target {100 * sparsity:.0f} %"] == pytest.approx(sparsity, abs=1e-3)
    packed = {config.name: Run(folder_of(shown, config.name, 0)).runtime() for config in configs()}
    assert all(record["speedup"] > 0 for record in packed.values())
    assert packed["RVSM ℓ0, target 90 %"]["file_bytes"] < 0.2 * packed["SGD"]["file_bytes"]


def test_the_demo_removes_no_run_and_measures_its_own_speeds(shown: Path) -> None:
    printed = (shown / "printed").read_text(encoding="utf-8")
    folders = [folder_of(shown, config.name, 0) for config in configs()]
    benched, *finished = (Run(folder) for folder in folders[:BEFORE])
    assert printed.count("already finished") == BEFORE
    assert all(run.runtime() == timed(batch=64) for run in finished)
    assert benched.runtime()["batch"] == 64
    assert benched.runtime()["speedup"] < 1000
    config = benched.folder / "config.toml"
    for text in (config.read_text().replace("lr = 0.1", "lr = 0.2"), config.read_text() + "[budget]\nshape = 'a'\n"):
        config.write_text(text)
        with pytest.raises(ValueError, match=r"holds a run .*give another folder, or remove it"):
            demo(Console(file=io.StringIO()), out=shown, epochs=EPOCHS, jobs=1)
    assert all((folder / "result.json").exists() for folder in folders)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "demo" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["dmo"])
    assert stop.value.code == 2
    assert "choose from" in capsys.readouterr().err
