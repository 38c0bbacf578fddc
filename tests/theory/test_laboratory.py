"""The command: files, exit codes, and what is said when a verdict changes."""

import json
from pathlib import Path

import pytest

from rvsm.cli import main
from rvsm.theory import EXPECTED, STATEMENTS
from rvsm.theory.page import PARTS


def test_every_statement_has_one_place_on_the_page() -> None:
    placed = [key for members in PARTS.values() for key in members]
    assert sorted(placed) == sorted(STATEMENTS)


def test_some_statements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "gradient", "descent-printed-l0", "--quick", "--out", str(tmp_path / "lab")]) == 0
    verdicts = json.loads((tmp_path / "lab" / "verdicts.json").read_text())
    assert [(v["statement"], v["verdict"]) for v in verdicts] == [
        ("gradient", "holds"),
        ("descent-printed-l0", "fails"),
    ]
    assert verdicts[1]["margin"] < 0 <= verdicts[1]["correction_margin"]
    assert verdicts[1]["counterexample"]
    html = (tmp_path / "lab" / "theory.html").read_text()
    assert 'id="descent-printed-l0"' in html
    assert "NOT confirmed" not in html
    assert "2 statements" in capsys.readouterr().out


def test_a_changed_verdict_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPECTED, "gradient", ("fails", True))
    assert main(["theory", "gradient", "--quick", "--out", str(tmp_path)]) == 1
    assert "not as expected: gradient" in capsys.readouterr().out
    assert "differ from the ones on record" in (tmp_path / "theory.html").read_text()


def test_an_unknown_statement_and_a_folder_that_cannot_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["theory", "gradeint", "--out", str(tmp_path / "lab")]) == 1
    assert "unknown statement 'gradeint'; choose from lemma-1" in capsys.readouterr().err
    assert not (tmp_path / "lab").exists()
    (tmp_path / "file").write_text("")
    assert main(["theory", "gradient", "--out", str(tmp_path / "file")]) == 1
    assert "rvsm: " in capsys.readouterr().err


def test_the_pictures_are_drawn(tmp_path: Path) -> None:
    from rvsm.theory.pictures import PICTURES
    from rvsm.theory.pictures.portrait import phase_portrait

    assert phase_portrait in PICTURES["Descent"]
    png, _ = phase_portrait().save(tmp_path)
    assert png.stat().st_size < 300_000
