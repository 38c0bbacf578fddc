import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rvsm.cli import main
from rvsm.compare import compare
from rvsm.config import Config, read_config
from rvsm.records import Run, folder_of
from rvsm.train import StoppedError, Trainer, session, start
from rvsm.train.recorder import Recorder

QUICK = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256"]


def config(name: str, *flags: str) -> Config:
    target = [] if "dense" in flags else ["--budget.sparsity", "0.3"]
    return read_config(flags=[*QUICK, *target, "--name", name, *flags])


class StopAtThree(Recorder):
    def on_step(self, trainer: Trainer) -> None:
        if trainer.step == 3:
            self._ask(2, None)
        super().on_step(trainer)


def compared(configs: list[Config], folder: Path, seeds: int = 1) -> str:
    text = io.StringIO()
    page = compare(configs, seeds=range(seeds), runs=folder, out=folder / "out", console=Console(file=text, width=200))
    assert page.is_file()
    return text.getvalue()


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(f): (f.stat().st_mtime_ns, f.read_bytes()) for f in folder.rglob("*") if f.is_file() and f.name != "lock"
    }


def test_what_is_missing_is_run_and_what_is_finished_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = config("a"), config("ℓ0 [/b] [50 %]", "--method.name", "dense")
    console = Console(file=io.StringIO())
    start(a, folder_of(tmp_path, a.name, 0), console)
    with monkeypatch.context() as patch:
        patch.setattr(session, "Recorder", StopAtThree)
        with pytest.raises(StoppedError):
            start(a.with_seed(1), folder_of(tmp_path, a.name, 1), console)
    before = files(folder_of(tmp_path, a.name, 0))
    text = compared([a, b], tmp_path, seeds=2)
    assert files(folder_of(tmp_path, a.name, 0)) == before
    assert text.count("epoch 2/2") == 3
    assert text.count("test accuracy") == 4
    assert text.count("continuing from step 3 of 8") == 1
    assert "3/4 a, seed 1" in text
    assert "4/4 ℓ0 [/b] [50 %], seed 1" in text
    results = {
        name: [Run(folder_of(tmp_path, name, seed)).result() or {} for seed in (0, 1)] for name in (a.name, b.name)
    }
    one, other = (100 * result["test"]["u"]["accuracy"] for result in results["a"])
    told = f"{(one + other) / 2:.2f} ± {abs(one - other) / 2**0.5:.2f}"
    assert told in text
    assert told in (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert len(json.loads((tmp_path / "out" / "table.json").read_text(encoding="utf-8"))) >= 1


def test_two_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two files have runs named 'a'; give one of them another name"):
        compared([config("a"), config("a", "--training.epochs", "3")], tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_names_of_one_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two files have runs named 'ℓ0 a'"):
        compared([config("ℓ0 a"), config("l0-a")], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_with_other_options_is_in_the_way(tmp_path: Path) -> None:
    start(config("a"), folder_of(tmp_path, "a", 0), Console(file=io.StringIO()))
    with pytest.raises(ValueError, match=r"holds a run with different options \(budget\.sparsity 0\.3 → 0\.6\)"):
        compared([config("a", "--budget.sparsity", "0.6")], tmp_path)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name, sparsity in (("few", 0.2), ("many", 0.3)):
        (tmp_path / f"{name}.toml").write_text(f"[model]\nwidth = 4\n[budget]\nsparsity = {sparsity}")
    flags = ["--training.epochs", "2", "--training.batch", "256"]
    assert main(["compare", "few.toml", "many.toml", "--seeds", "2", "--runs", "all", *flags]) == 0
    out = capsys.readouterr().out
    page = Path(out.strip().splitlines()[-1])
    assert page == Path("all/comparison/report.html")
    assert page.is_file()
    assert "few" in out
    assert main(["report", "all/few-s0", "--out", "one"]) == 0
    assert capsys.readouterr().out.strip() == "one/report.html"
    assert Path("one/report.html").is_file()
