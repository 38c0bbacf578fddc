import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.cli import main
from rvsm.records import Run
from rvsm.results import collect, read, store, summarize
from rvsm.results.reading import summary_of


@pytest.fixture
def runs(trained: dict[str, Path]) -> list[Run]:
    return [Run(trained[name]) for name in ("dense", "l0", "l0-s1")]


@pytest.fixture(scope="module")
def real(trained: dict[str, Path]) -> dict[str, Any]:
    return summarize(Run(trained["l0"]))


def test_lines_in_the_order_in_which_they_came(runs: list[Run], tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.jsonl"
    assert collect(runs[:1], file) == (1, 0)
    assert collect(runs[1:], file) == (2, 0)
    assert [(s.name, s.seed) for s in read(file)] == [("dense", 0), ("l0", 0), ("l0", 1)]
    assert file.read_text().count("\n") == 3


def test_a_line_of_the_same_run_is_replaced_where_it_stands(
    runs: list[Run], copy: Callable[..., Run], tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    collect(runs, file)
    lines = file.read_text().splitlines()
    lines[0] = lines[0].replace(",", ", ")  # another spacing, which has to stay
    file.write_text("\n".join(lines) + "\n\n")
    changed = copy("l0")
    result = changed.result()
    assert result is not None
    (changed.folder / "result.json").write_text(json.dumps({**result, "sparsity": 0.25}))
    assert collect([changed], file) == (0, 1)
    after = file.read_text().splitlines()
    assert (after[0], after[2]) == (lines[0], lines[2])
    assert json.loads(after[1])["sparsity"] == 0.25
    assert len(after) == 3


def test_other_options_of_one_name_are_refused(runs: list[Run], copy: Callable[..., Run], tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    collect(runs, file)
    before = file.read_text()
    changed = copy("l0")
    config = changed.folder / "config.toml"
    config.write_text(config.read_text().replace("lam = 0.001", "lam = 0.002"))
    with pytest.raises(ValueError, match=r"with these runs, .*a\.jsonl has runs called l0 with different options"):
        collect([changed], file)
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("{", r"is damaged: it is not JSON from character 2 on; restore the line, or delete it and collect"),
        ("[]", "it should be an object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": 2}', "its format is 2"),
        ({"name": "a\nb"}, "name should be a text of one line"),
        ({"seed": 1.5}, "seed should be a whole number but is 1.5"),
        ({"weights": True}, "weights should be a whole number ≥ 0 but is True"),
        ({"nonzeros": -1}, "nonzeros should be a whole number ≥ 0"),
        ({"sparsity": 1.01}, r"sparsity should be a share in \[0, 1\] but is 1.01"),
        ({"sparsity_of_all": "much"}, "sparsity_of_all should be a share"),
        ({"multiplications_saved": 2}, "multiplications_saved should be a share"),
        ({"test": {"w": {"accuracy": 0.5, "loss": 1.0}}}, "test.u.accuracy should be a share"),
        ({"test": {"w": {"accuracy": 0.5, "loss": "low"}}}, "test.w.loss should be a number"),
        ({"options": 3}, "options should be an object but is 3"),
        ({"layers": {"a": {"shape": [2.5], "density": 1}}}, "layers.a should have a shape"),
        ({"channel_norms": {"w": {"a": [-1.0]}}}, "channel_norms.w.a should be a list of numbers"),
        ({"channel_norms": {"w": 3}}, "channel_norms.w should be an object"),
        ({"curve": {"epoch": [1], "gap": []}}, "columns of the curve should have one length"),
        ({"curve": {"epoch": ["x"]}}, "curve.epoch should be numbers"),
        ({"curve": {"gap": 3}}, "curve.gap should be a list"),
        ({"minutes": -3}, "minutes should be a number ≥ 0"),
        ({"images": 3}, "images should be a text"),
        ({"runtime": {"file_bytes": 3, "engines": 4}}, "runtime.engines should be a list"),
        (
            {"runtime": {"file_bytes": 3, "engines": [{"engine": "a", "batch": 1, "milliseconds": 0}]}},
            "milliseconds > 0",
        ),
        ({"about": []}, "about should be an object"),
    ],
)
def test_damage_is_told_with_its_line(
    damage: str | dict[str, Any], said: str, real: dict[str, Any], runs: list[Run], tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    bad = damage if isinstance(damage, str) else json.dumps({**real, **damage})
    file.write_text(f"{json.dumps({**real, 'name': 'other'})}\n\n{bad}\n")
    before = file.read_text()
    with pytest.raises(ValueError, match=said) as raised:
        read(file)
    assert str(raised.value).startswith(f"line 3 of {file} is damaged: ")
    with pytest.raises(ValueError, match="line 3 of"):
        collect(runs, file)
    assert file.read_text() == before


def test_two_lines_of_one_run(real: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f"{json.dumps(real)}\n{json.dumps(real)}\n")
    with pytest.raises(ValueError, match=r"lines 1 and 2 of .* are of one run \(l0, seed 0\)"):
        read(file)


def test_files_that_are_not_there_or_not_text(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        read(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="has no line"):
        read(tmp_path / "c.jsonl")
    with pytest.raises(ValueError, match=r"should end in \.jsonl"):
        collect(runs, tmp_path / "a.json")


def test_one_bad_run_leaves_the_file_as_it_was(runs: list[Run], copy: Callable[..., Run], tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    collect(runs[:1], file)
    before = file.read_text()
    bad = copy("l0")
    (bad.folder / "result.json").write_text('{"epochs": 2}')
    with pytest.raises(ValueError, match="cannot be collected: steps should be a whole number"):
        collect([runs[2], bad], file)
    assert file.read_text() == before


def test_a_file_stays_small(runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LARGEST", 5000)
    with pytest.raises(ValueError, match="more than 5,000; collect into another file"):
        collect(runs, tmp_path / "a.jsonl")
    assert not (tmp_path / "a.jsonl").exists()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["w", "u", "epoch"]), inner),
    max_leaves=6,
)


@given(data=st.data())
def test_whatever_is_in_a_line_it_is_read_or_refused(data: st.DataObject, real: dict[str, Any]) -> None:
    key = data.draw(st.sampled_from(sorted(real)))
    changed = {**real, key: data.draw(json_values)}
    try:
        summary = summary_of(changed)
    except ValueError:
        return
    assert 0 <= summary.sparsity <= 1
    assert 0 <= summary.u.accuracy <= 1
    assert all(norm >= 0 for norms in summary.norms_u.values() for norm in norms)


class TestCommand:
    def test_new_and_replaced(
        self, trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "cpu.jsonl"
        assert main(["collect", str(trained["l0"]), "--into", str(file)]) == 0
        assert main(["collect", str(trained["dense"]), str(trained["l0"]), "--into", str(file)]) == 0
        assert capsys.readouterr().out == f"{file}: 1 new, 0 replaced\n{file}: 1 new, 1 replaced\n"

    def test_a_folder_that_is_no_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["collect", str(tmp_path), "--into", str(tmp_path / "cpu.jsonl")]) == 1
        assert "is not a run's folder: it has no config.toml" in capsys.readouterr().err
