"""The command: what it trains, prints, writes and refuses."""

import json
import re
import shutil
import sqlite3
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from rvsm.cli import main
from rvsm.config import config_of
from rvsm.records import Run
from rvsm.report import rows

SMALL = ["--model.width", "4", "--training.epochs", "4", "--training.batch", "256"]
RANGE = ["--param", "budget.sparsity=0.05:0.15"]


@pytest.fixture
def swept(once: Callable[..., Path], elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the folder of a sweep with two goals and four trials."""

    def fill(folder: Path) -> None:
        monkeypatch.chdir(folder)
        words = [*RANGE, "--param", "optimizer.lr=0.02:0.2:log", "--goal", "accuracy", "--goal", "sparsity"]
        assert main(["sweep", *words, *SMALL, "--trials", "4", "--sweep", "a"]) == 0
        monkeypatch.chdir(elsewhere)

    shutil.copytree(once("swept", fill) / "a", "a")
    return Path("a")


class TestSweep:
    def test_what_it_writes(self, swept: Path) -> None:
        runs = [Run(swept / f"trial-{number:04d}") for number in range(4)]
        assert {run.status for run in runs} == {"finished"}
        base = tomllib.loads((swept / "base.toml").read_text())
        assert base == {"name": "run", "model": {"width": 4}, "training": {"batch": 256, "epochs": 4}}
        best = tomllib.loads((swept / "best.toml").read_text())
        number = int(best["name"].removeprefix("run-"))
        assert config_of(best) == config_of(runs[number].config())
        assert [c.name for c in rows(runs)] == [f"run-{number}" for number in range(4)]  # of rvsm report

    def test_the_page(self, swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
        expected = (swept / "sweep.html").read_text(encoding="utf-8")
        (swept / "sweep.html").unlink()
        assert main(["sweep", "a", "--page"]) == 0
        out = capsys.readouterr().out
        assert re.search(r"^\d trials are on the front of accuracy and sparsity\nthe knee is trial \d: val", out)
        assert "train it again with: rvsm train a/best.toml\nthe page is a/sweep.html" in out
        page = (swept / "sweep.html").read_text(encoding="utf-8")
        assert page == expected
        knee = re.findall(r"trial (\d), the knee: budget\.sparsity [\d.]+, optimizer\.lr [\d.]+", page)
        assert knee  # among the numbers behind the picture of the front
        assert re.search(rf"The knee of the front is trial {knee[0]}:", page)
        measures = [Run(swept / f"trial-{n:04d}").result()["sparsity"] for n in range(4)]
        assert all(f">{100 * zeros:.2f}</td>" in page for zeros in measures)
        assert '<figure id="fronts">' in page
        assert '<figure id="slices-accuracy">' in page

    def test_joining_trains_nothing_that_is_done(self, swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
        before = {file: file.stat().st_mtime_ns for file in swept.glob("trial-*/result.json")}
        assert main(["sweep", "a"]) == 0
        assert not re.search(r"^trial \d", capsys.readouterr().out, re.MULTILINE)
        assert {file: file.stat().st_mtime_ns for file in swept.glob("trial-*/result.json")} == before

    def test_other_options_in_the_same_folder(self, swept: Path, refused: Callable[..., str]) -> None:
        words = [*RANGE, "--param", "optimizer.lr=0.02:0.3:log", *SMALL, "--sweep", "a", "--model.width", "5"]
        text = refused(*words)
        assert text.startswith(
            "a is a sweep with different options (model.width 4 → 5, parameters budget.sparsity=0.05"
        )
        assert "goals accuracy sparsity → accuracy" in text
        assert refused("a", *SMALL) == "a is a sweep with options of its own; leave out --model.width=4"

    def test_a_model_that_a_storage_names(
        self, swept: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A storage is data: a model that it names is not imported."""
        monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
        Path("evil.py").write_text("open('imported', 'w').close()\n")
        with sqlite3.connect(swept / "sweep.db") as database:
            (kept,) = database.execute("select value_json from study_user_attributes where key = 'sweep'").fetchone()
            forged = json.loads(kept) | {"parameters": ["model.name=convnet,evil:net"]}
            database.execute(
                "update study_user_attributes set value_json = ? where key = 'sweep'", [json.dumps(forged)]
            )
        database.close()
        for words in (["a"], ["a", "--page"]):
            assert "'evil:net' would be imported and called" in refused(*words)
        assert not Path("imported").exists()

    @pytest.mark.parametrize(
        ("kept", "sentence"),
        [
            ("3", "the storage holds no sweep of this version of rvsm"),
            ('{"format": 1}', "parameters should be a list but is None"),
            ('{"format": 1, "parameters": ["budget.sparsity=0:9"], "goals": []}', "--budget.sparsity=9.0: [budget]"),
            ('{"format": 1, "parameters": ["seed=1,2"], "goals": ["gold"]}', "unknown goal 'gold'; choose from acc"),
        ],
    )
    def test_a_forged_storage(self, swept: Path, refused: Callable[..., str], kept: str, sentence: str) -> None:
        Path("a/base.toml").write_text('name = "run"\n[budget]\nsparsity = 0.5\n')
        with sqlite3.connect(swept / "sweep.db") as database:
            database.execute("update study_user_attributes set value_json = ? where key = 'sweep'", [kept])
        database.close()
        assert sentence in refused("a", "--page")

    def test_a_damaged_storage(self, swept: Path, refused: Callable[..., str]) -> None:
        (swept / "sweep.db").write_bytes(b"not a database" * 100)
        assert refused("a") == "the storage a/sweep.db cannot be used: file is not a database"
        (swept / "sweep.db").unlink()
        assert refused("a").startswith("a has no sweep.db; if its storage is a database, give the same --storage URL")
        (swept / "base.toml").unlink()
        assert refused("a") == "a is not the folder of a sweep: it has no base.toml; give one that rvsm sweep made"


@pytest.mark.usefixtures("elsewhere")
class TestRefused:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ([], "a sweep needs at least one parameter: --param budget.sparsity=0.8:0.99"),
            ([*RANGE, "--goal", "money"], "unknown goal 'money'; choose from accuracy, sparsity, multiplications, sp"),
            ([*RANGE, "--goal", "speed", "--goal", "speed"], "--goal speed is given twice"),
            ([*RANGE, "--trials", "0"], "--trials must be at least 1 but is 0"),
            (["--page"], "--page needs the folder of a sweep"),
            (["x.toml", "y.toml"], "sweep takes one file or folder but got 2"),
            (["x.toml", *RANGE], "there is no file x.toml"),
            ([*RANGE, "--trainin.epochs", "3"], "unknown section 'trainin'; did you mean 'training'?"),
            ([*RANGE, "--storage", "here"], "--storage expects a URL such as postgresql+psycopg://user@host/database"),
            (
                [*RANGE, "--storage", "postgresql+nothing://me:secret@nowhere/db"],
                "database but got postgresql+nothing://me:***@nowhere/db",
            ),
        ],
    )
    def test_before_anything_is_trained(self, words: list[str], sentence: str, refused: Callable[..., str]) -> None:
        assert sentence in refused(*words)
        assert not list(Path().glob("sweeps/*/trial-*"))

    def test_a_path_with_special_characters(self, capsys: pytest.CaptureFixture[str]) -> None:
        folder = "a {b} 100% ?c#"
        words = ["--param", "seed=0,1", "--budget.sparsity", "0.1", "--model.width", "2", "--training.epochs", "1"]
        assert main(["sweep", *words, "--training.batch", "512", "--sweep", folder]) == 0
        assert Path(folder, "sweep.db").is_file()
        assert list(Path().glob("*")) == [Path(folder)]


@pytest.mark.usefixtures("elsewhere")
class TestTrials:
    def test_hopeless_ones_are_stopped_after_the_ramp(self, capsys: pytest.CaptureFixture[str]) -> None:
        """All combinations are tried once; one learns too slowly, and one diverges."""
        rates = "0.1,0.11,0.12,0.13,0.14,1e-7,1e30"
        words = ["--param", f"optimizer.lr={rates}", "--budget.sparsity", "0.1", *SMALL, "--training.epochs", "6"]
        assert main(["sweep", *words, "--trials", "40", "--name", "rates"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len([line for line in lines if re.match(r"trial \d: validation accuracy ", line)]) == 5
        assert "trial 5: stopped after epoch 4 of 6, since others were better by then; optimizer.lr 1e-7" in lines
        assert any(re.match(r"trial 6: (the loss became|after step) .*; optimizer\.lr 1e30", line) for line in lines)
        pruned = Run(Path("sweeps/rates/trial-0005"))
        assert [record["phase"] for record in pruned.metrics()] == ["ramp", "ramp", "ramp", "hold"]
        assert pruned.checkpoints()[-1].name == "step-000000016.safetensors"
        page = Path("sweeps/rates/sweep.html").read_text(encoding="utf-8")
        assert "5 of 7 trials are finished, 1 pruned, 1 failed." in page
        assert "pruned after epoch 4" in page
        assert "The best is trial" in page
