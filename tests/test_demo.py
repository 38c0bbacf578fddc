"""The demo, short, with everything in it real."""

import io

import pytest
from rich.console import Console

import rvsm.demo
from rvsm.cli import main


def test_the_demo_trains_every_method_and_prints_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rvsm.demo, "EPOCHS", 4)
    console = Console(file=io.StringIO(), width=120)
    rows = {row.method: row for row in rvsm.demo.demo(console)}
    printed = console.file.getvalue()
    assert set(rows) == set(rvsm.demo.recipes())
    assert all(name in printed for name in rows)
    assert all(row.accuracy > 80 for row in rows.values()), "each network learns the digits"
    assert rows["SGD"].sparsity == 0
    assert 0 < rows["RVSM ℓ1"].sparsity < rows["RVSM Tℓ1"].sparsity < rows["RVSM ℓ0"].sparsity
    assert abs(rows["RVSM ℓ0, 90 % asked"].sparsity - 0.9) < 1e-4
    assert abs(rows["Magnitude, 90 % asked"].sparsity - 0.9) < 1e-4
    assert abs(rows["ADMM, 60 % asked"].sparsity - 0.6) < 1e-3


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "demo" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["dmo"])
    assert stop.value.code == 2
    assert "choose from" in capsys.readouterr().err
