"""The command: files, exit codes, and what is said when a verdict changes."""

import json
from pathlib import Path

import pytest

from processes import serve
from rvsm.cli import main
from rvsm.pages import Figure
from rvsm.paper.theory import EXPECTED, STATEMENTS
from rvsm.paper.theory.statements import PARTS


def test_every_statement_has_one_place_on_the_page() -> None:
    assert [key for members in PARTS.values() for key in members] == list(STATEMENTS)


def test_some_statements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "gradient", "only-the-threshold", "--quick", "--out", str(tmp_path / "lab")]) == 0
    verdicts = json.loads((tmp_path / "lab" / "verdicts.json").read_text())
    assert [(v["statement"], v["verdict"]) for v in verdicts] == [
        ("gradient", "holds"),
        ("only-the-threshold", "fails"),
    ]
    assert verdicts[1]["margin"] < 0 <= verdicts[1]["correction_margin"]
    assert verdicts[1]["counterexample"]
    html = (tmp_path / "lab" / "theory.html").read_text()
    assert 'id="only-the-threshold"' in html
    assert "NOT confirmed" not in html
    assert "2 statements" in capsys.readouterr().out


def test_a_changed_verdict_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPECTED, "gradient", "fails")
    assert main(["theory", "gradient", "--quick", "--out", str(tmp_path)]) == 1
    assert "not as expected: gradient" in capsys.readouterr().out
    assert "differ from the recorded ones" in (tmp_path / "theory.html").read_text()


def test_an_unknown_statement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "gradeint", "--out", str(tmp_path / "lab")]) == 1
    assert "unknown statement 'gradeint'; choose from lemma-1" in capsys.readouterr().err
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize("out", ["file", "file/lab"])
def test_a_file_is_not_a_folder(out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["theory", "gradient", "--out", str(tmp_path / out)]) == 1
    assert "rvsm: --out must be a folder but" in (told := capsys.readouterr().err)
    assert "Errno" not in told


def test_a_statement_given_twice_is_judged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "gradient", "gradient", "--quick", "--out", str(tmp_path)]) == 0
    assert len(json.loads((tmp_path / "verdicts.json").read_text())) == 1
    told = capsys.readouterr().out
    assert "1 statement in" in told
    assert "evidence: 600 points" in told


def test_some_statements_never_replace_the_page_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "gradient", "sine-gives-angle", "--quick", "--out", str(tmp_path)]) == 0
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert main(["theory", "gradient", "--quick", "--out", str(tmp_path)]) == 0
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert "has a page of 1 other statement, so nothing was written" in capsys.readouterr().out
    # All that the page has, and more: nothing is lost.
    more = ["gradient", "sine-gives-angle", "simploss"]
    assert main(["theory", *more, "--quick", "--out", str(tmp_path)]) == 0
    assert [verdict["statement"] for verdict in json.loads((tmp_path / "verdicts.json").read_text())] == more


def a_line(quick: bool) -> Figure:
    return Figure("line", f"A line, quick: {quick}", lambda canvas: canvas.subplots().plot([0, 1]))


@pytest.mark.parametrize("quick", [True, False])
def test_a_whole_run_judges_and_draws(
    quick: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve()  # which has imported what the process that judges needs
    few = {key: STATEMENTS[key] for key in ("gradient", "sine-gives-angle")}
    monkeypatch.setattr("rvsm.paper.theory.laboratory.STATEMENTS", few)
    monkeypatch.setattr("rvsm.paper.theory.pictures.PICTURES", {"Descent": [a_line]})
    assert main(["theory", *(["--quick"] if quick else []), "--out", str(tmp_path)]) == 0
    assert [verdict["verdict"] for verdict in json.loads((tmp_path / "verdicts.json").read_text())] == ["holds"] * 2
    html = (tmp_path / "theory.html").read_text()
    assert f"A line, quick: {quick}" in html
    assert html.count('role="img"') == 1
    assert {file.name for file in tmp_path.glob("line.*")} == (set() if quick else {"line.png", "line.pdf"})
    assert "2 statements in" in capsys.readouterr().out
