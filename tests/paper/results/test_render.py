import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rvsm.cli import main
from rvsm.paper.results.documents import PARTS

Line = Callable[..., dict[str, Any]]


@pytest.fixture
def results(line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two collections; the working directory is above it."""
    folder = tmp_path / "results"
    folder.mkdir()
    test = {"w": {"accuracy": 0.84, "loss": 0.4}, "u": {"accuracy": 0.84, "loss": None}}
    cpu = [line("vgg16-base", 0.85), line("vgg16-l0", 0.84, 0.8, test=test)]
    (folder / "cpu.jsonl").write_text("".join(json.dumps(one) + "\n" for one in cpu))
    (folder / "flagship.jsonl").write_text(json.dumps(line("fastnet-rvsm-l0-95", 0.9, 0.95)) + "\n")
    (tmp_path / "experiments").mkdir()
    monkeypatch.chdir(tmp_path)
    return folder


def test_the_command(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = results.parent / "docs" / "results.md"
    docs.parent.mkdir()
    docs.write_text("Before\n<!-- results: cpu/table-1 -->\n<!-- end -->\n<!-- results: gpu/costs -->\n<!-- end -->\n")
    words = ["results", "results/cpu.jsonl", "results/flagship.jsonl", "--docs", "docs/results.md"]
    assert main(words) == 0
    written = [Path(name) for name in capsys.readouterr().out.splitlines()]
    assert all(file.is_file() for file in written)
    assert {file.name for file in written} == {
        *("tables.md", "verdicts.md", "verdicts.json", "results.md"),
        *("cpu-accuracy-zeros.png", "cpu-losses-vgg16.png", "cpu-layers-vgg16.png", "flagship-accuracy-speed.png"),
    }
    assert {file.name for file in results.iterdir()} == {
        *("cpu.jsonl", "flagship.jsonl", "tables.md", "verdicts.md", "verdicts.json", "pictures")
    }
    text = docs.read_text()
    assert text.startswith("Before\n<!-- results: cpu/table-1 -->\n\n**Table 1:")
    assert text.endswith("<!-- results: gpu/costs -->\n\n*There is no file gpu.jsonl yet.*\n\n<!-- end -->\n")


def test_the_files(results: Path) -> None:
    assert main(["results", "results/cpu.jsonl", "results/flagship.jsonl", "--out", "elsewhere/out"]) == 0
    out = results.parent / "elsewhere" / "out"
    tables, verdicts = (out / "tables.md").read_text(), (out / "verdicts.md").read_text()
    keys = [line for line in (tables + verdicts).splitlines() if line.startswith("<!-- results")]
    assert keys == [
        f"<!-- results: {key} -->"
        for key in (
            "cpu/table-1",
            "cpu/costs",
            "cpu/pictures",
            "flagship/networks",
            "flagship/headline",
            "flagship/costs",
            "flagship/pictures",
        )
    ] + ["<!-- results: cpu/verdicts -->"]
    assert {key.split("/")[-1].removesuffix(" -->") for key in keys} <= set(PARTS)
    assert "![cpu-accuracy-zeros](../out/pictures/cpu-accuracy-zeros.png)" in tables
    judged = {one["statement"]: one for one in json.loads((out / "verdicts.json").read_text())}
    assert judged["loss-of-u-vgg16"]["verdict"] == "fails"
    assert judged["loss-of-u-vgg16"]["margin"] is None  # −∞: the loss is not a number
    assert judged["penalty-sparsity"]["verdict"] == "not run yet"
    assert all(one["collection"] == "cpu" for one in judged.values())
    assert "| loss-of-u-vgg16 | Section 3.3 | fails | −inf |" in verdicts
    assert "| penalty-sparsity | Section 6, Table 1 | not run yet | – |" in verdicts
    assert "*Not run yet*: needs vgg16-tl1, vgg16-l1." in verdicts
    kept = "base model 85.00 %; ℓ0 −1.00 points, not told apart by one seed (paper: −1.28)"
    assert f"*Not told apart*: {kept}; not run yet: vgg16-l1, vgg16-tl1." in verdicts
    assert "| accuracy-kept-vgg16 | Section 6, Table 1 | not told apart | 0.28 |" in verdicts
    assert judged["accuracy-kept-vgg16"]["margin"] == pytest.approx(0.28)


def test_one_collection_of_two_leaves_the_other(results: Path) -> None:
    docs = results.parent / "a.md"
    docs.write_text("<!-- results: cpu/costs -->\n<!-- end -->\n<!-- results: flagship/costs -->\n<!-- end -->\n")
    assert main(["results", "results/cpu.jsonl", "results/flagship.jsonl", "--docs", "a.md"]) == 0
    before = docs.read_text()
    assert main(["results", "results/cpu.jsonl", "--docs", "a.md", "--out", "elsewhere"]) == 0
    assert docs.read_text() == before


def test_tables_do_not_lose_a_collection(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", "results/cpu.jsonl", "results/flagship.jsonl"]) == 0
    before = (results / "tables.md").read_text()
    assert main(["results", "results/cpu.jsonl"]) == 1
    assert "results/tables.md was also made from flagship.jsonl; give all files" in capsys.readouterr().err
    assert (results / "tables.md").read_text() == before


def test_rows_of_different_images_are_no_table(results: Path, line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line("vgg16-base", images="aa"), line("vgg16-l0", images=None), line("vgg16-l1", images="bb")]
    (results / "cpu.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert main(["results", "results/cpu.jsonl"]) == 1
    assert "vgg16-base and vgg16-l1 were trained on different images (aa and bb)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["results/none.jsonl"], "there is no file results/none.jsonl; make it with rvsm collect"),
        (["results/cpu.jsonl", "--docs", "none.md"], "none.md cannot be read"),
        (["results/cpu.jsonl", "results/cpu.jsonl"], "have the same name"),
        (
            ["results/cpu.jsonl", "--experiments", "none"],
            "there is no folder none; give the folder of the experiment files",
        ),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(
    words: list[str], said: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("rvsm: ")
    assert said in error
    assert sorted(file.name for file in results.iterdir()) == ["cpu.jsonl", "flagship.jsonl"]
