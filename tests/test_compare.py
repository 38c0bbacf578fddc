import io
import json
from pathlib import Path

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
    return read_config(flags=[*QUICK, "--budget.sparsity", "0.3", "--name", name, *flags])


class StopAtThree(Recorder):
    def on_step(self, trainer: Trainer) -> None:
        if trainer.step == 3:
            self._ask(2, None)
        super().on_step(trainer)


def compared(configs: list[Config], folder: Path) -> None:
    compare(configs, seeds=[0], runs=folder, out=folder / "out", console=Console(file=io.StringIO()))


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(f): (f.stat().st_mtime_ns, f.read_bytes()) for f in folder.rglob("*") if f.is_file() and f.name != "lock"
    }


def test_what_is_missing_is_run_and_what_is_finished_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("a.toml").write_text("[budget]\nsparsity = 0.3\n")
    Path("b.toml").write_text("name = 'ℓ0 [/b] [50 %]'\n[method]\nname = 'dense'\n")
    a, b = (read_config(Path(file), QUICK) for file in ("a.toml", "b.toml"))
    runs = {config.name: [folder_of(Path("all"), config.name, seed) for seed in (0, 1)] for config in (a, b)}
    start(a, runs["a"][0], Console(file=io.StringIO()))
    with monkeypatch.context() as patch:
        patch.setattr(session, "Recorder", StopAtThree)
        with pytest.raises(StoppedError):
            start(a.with_seed(1), runs["a"][1], Console(file=io.StringIO()))
    before = files(runs["a"][0])
    assert main(["compare", "a.toml", "b.toml", "--seeds", "2", "--runs", "all", *QUICK]) == 0
    text = capsys.readouterr().out
    assert files(runs["a"][0]) == before
    assert text.count("epoch 2/2") == 3
    assert text.count("test accuracy") == 4
    assert text.count("continuing from step 3 of 8") == 1
    assert "3/4 a, seed 1" in text
    assert "4/4 ℓ0 [/b] [50 %], seed 1" in text
    results = [Run(folder).result() or {} for folder in runs["a"]]
    one, other = (100 * result["test"]["u"]["accuracy"] for result in results)
    told = f"{(one + other) / 2:.2f} ± {abs(one - other) / 2**0.5:.2f}"
    assert told in text
    page = Path(text.strip().splitlines()[-1])
    assert page == Path("all/comparison/report.html")
    assert page.is_file()
    assert told in page.with_name("table.md").read_text(encoding="utf-8")
    assert {row["name"] for row in json.loads(page.with_name("table.json").read_text(encoding="utf-8"))} == set(runs)


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
