"""The demo, short, with everything in it real."""

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from rvsm.cli import main
from rvsm.config import as_toml
from rvsm.demo import _forget_older, configs, demo
from rvsm.records import Run, folder_of


def test_the_demo_trains_every_method_prints_the_table_and_writes_the_page(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=120)
    page = demo(console, out=tmp_path, epochs=4)
    printed = console.file.getvalue()
    assert page.is_file()
    results = {}
    for config in configs():
        assert config.name in printed
        results[config.name] = Run(folder_of(tmp_path, config.name, 0)).result()
    accuracies = {name: result["test"]["u"]["accuracy"] for name, result in results.items()}
    assert all(accuracy > 0.75 for accuracy in accuracies.values()), "each network learns the digits"
    zeros = {name: result["sparsity"] for name, result in results.items()}
    assert zeros["SGD"] == 0
    assert 0 < zeros["RVSM ℓ1"] < zeros["RVSM Tℓ1"] < zeros["RVSM ℓ0"]
    assert zeros["RVSM ℓ0, 90 % asked"] == pytest.approx(0.9, abs=1e-4)
    assert zeros["Magnitude, 90 % asked"] == pytest.approx(0.9, abs=1e-4)
    assert zeros["ADMM, 60 % asked"] == pytest.approx(0.6, abs=1e-3)
    packed = {config.name: Run(folder_of(tmp_path, config.name, 0)).runtime() for config in configs()}
    assert all(record["speedup"] > 0 for record in packed.values())
    assert packed["RVSM ℓ0, 90 % asked"]["file_bytes"] < 0.2 * packed["SGD"]["file_bytes"]


def test_a_run_of_another_version_is_run_again_and_others_are_kept(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=120)
    demo(console, out=tmp_path, epochs=1)
    folders = [folder_of(tmp_path, config.name, 0) for config in configs()]
    config = folders[0] / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.1", "lr = 0.2"))
    before = [(folder / "result.json").stat().st_mtime_ns for folder in folders]
    demo(console, out=tmp_path, epochs=1)
    after = [(folder / "result.json").stat().st_mtime_ns for folder in folders]
    assert after[0] != before[0]
    assert after[1:] == before[1:]


def test_a_run_with_an_option_that_is_no_longer_there_is_forgotten(tmp_path: Path) -> None:
    config = configs()[0].with_seed(0)
    folder = folder_of(tmp_path, config.name, 0)
    for added, kept in (("", True), ("[budget]\nshape = 'linear'\n", False)):
        Run.create(folder, config=as_toml(config) + added, about={})
        _forget_older(config, tmp_path)
        assert folder.exists() == kept
        shutil.rmtree(folder, ignore_errors=True)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "demo" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["dmo"])
    assert stop.value.code == 2
    assert "choose from" in capsys.readouterr().err
