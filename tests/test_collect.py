"""Runs as lines of a results file: what is kept of them, and what is refused."""

import json
import platform
import shutil
from collections.abc import Callable
from io import StringIO
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rvsm import collect as module
from rvsm.cli import main
from rvsm.collect import collect, line_of, read
from rvsm.config import build, config_of, read_config
from rvsm.records import Record, Run
from rvsm.train import start

COMMON = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--training.threads", "1"]
KINDS = {
    "dense": ["--method.name", "dense"],
    "l0": ["--method.beta", "1.0", "--penalty.name", "l0", "--penalty.lam", "1e-3"],
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders of finished runs: "dense", "l0", and "l0-s1" with another seed."""
    folder = tmp_path_factory.mktemp("runs")
    data = build.dataset(read_config(flags=["--method.name", "dense"]))
    for kind, seed in [("dense", 0), ("l0", 0), ("l0", 1)]:
        config = read_config(flags=[*COMMON, *KINDS[kind], "--name", kind, "--seed", str(seed)])
        start(config, folder / (f"{kind}-s{seed}" if seed else kind), Console(file=StringIO()), data)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def copy(trained: dict[str, Path], tmp_path: Path) -> Callable[..., Run]:
    """Return what makes a copy of a run, to be changed by a test."""

    def copied(kind: str) -> Run:
        shutil.copytree(trained[kind], tmp_path / "runs" / kind)
        return Run(tmp_path / "runs" / kind)

    return copied


@pytest.fixture
def runs(trained: dict[str, Path]) -> list[Run]:
    return [Run(trained[name]) for name in ("dense", "l0", "l0-s1")]


@pytest.fixture(scope="module")
def real(trained: dict[str, Path]) -> dict[str, Any]:
    return line_of(Run(trained["l0"]))


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
        ({"name": "a\nb"}, "name should be a string of one line"),
        ({"seed": 1.5}, "seed should be an integer but is 1.5"),
        ({"weights": True}, "weights should be an integer ≥ 0 but is True"),
        ({"nonzeros": -1}, "nonzeros should be an integer ≥ 0"),
        ({"sparsity": 1.01}, r"sparsity should be a fraction in \[0, 1\] but is 1.01"),
        ({"sparsity_of_all": "much"}, "sparsity_of_all should be a fraction"),
        ({"multiplications_saved": 2}, "multiplications_saved should be a fraction"),
        ({"test": {"w": {"accuracy": 0.5, "loss": 1.0}}}, "test.u.accuracy should be a fraction"),
        ({"test": {"w": {"accuracy": 0.5, "loss": "low"}}}, "test.w.loss should be a number"),
        ({"options": 3}, "options should be an object but is 3"),
        ({"layers": {"a": {"shape": [2.5], "density": 1}}}, "layers.a should have a shape"),
        ({"channel_norms": {"w": {"a": [-1.0]}}}, "channel_norms.w.a should be a list of numbers"),
        ({"channel_norms": {"w": 3}}, "channel_norms.w should be an object"),
        ({"curve": {"epoch": [1], "gap": []}}, "columns of the curve should have the same length"),
        ({"curve": {"epoch": ["x"]}}, "curve.epoch should be numbers"),
        ({"curve": {"gap": 3}}, "curve.gap should be a list"),
        ({"minutes": -3}, "minutes should be a number ≥ 0"),
        ({"images": 3}, "images should be a string"),
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
    with pytest.raises(ValueError, match=r"lines 1 and 2 of .* describe the same run \(l0, seed 0\)"):
        read(file)


def test_files_that_are_not_there_or_not_text(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        read(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        read(tmp_path / "c.jsonl")
    with pytest.raises(ValueError, match=r"should end in \.jsonl"):
        collect(runs, tmp_path / "a.json")


def test_one_bad_run_leaves_the_file_as_it_was(runs: list[Run], copy: Callable[..., Run], tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    collect(runs[:1], file)
    before = file.read_text()
    bad = copy("l0")
    (bad.folder / "result.json").write_text('{"epochs": 2}')
    with pytest.raises(ValueError, match=r"result\.json is damaged: steps should be an integer ≥ 0 but is None"):
        collect([runs[2], bad], file)
    assert file.read_text() == before


def test_a_file_stays_small(runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 5000)
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
        outcome = Record.of_line(changed).outcome
    except ValueError:
        return
    assert outcome is not None
    assert 0 <= outcome.sparsity <= 1
    assert 0 <= outcome.u.accuracy <= 1
    assert all(norm >= 0 for norms in outcome.norms_u.values() for norm in norms)


def test_the_numbers_of_the_result(trained: dict[str, Path]) -> None:
    run = Run(trained["l0"])
    result, line = run.result(), line_of(run)
    assert result is not None
    assert line["test"]["u"]["accuracy"] == pytest.approx(result["test"]["u"]["accuracy"], rel=1e-5)
    assert line["test"]["w"]["loss"] == pytest.approx(result["test"]["w"]["loss"], rel=1e-5)
    assert line["sparsity"] == pytest.approx(result["sparsity"], rel=1e-5)
    for key in ("steps", "weights", "parameters", "nonzeros", "test_images"):
        assert line[key] == result[key]
    assert line["minutes"] == pytest.approx(result["seconds"] / 60, rel=1e-5)
    assert line["channel_norms"] == result["channel_norms"]
    assert {n: layer["shape"] for n, layer in line["layers"].items()} == {
        n: layer["shape"] for n, layer in result["layers"].items()
    }
    assert line["file_bytes"] == (trained["l0"] / "model.safetensors").stat().st_size
    assert len(line["images"]) == 16


def test_name_options_and_fingerprint_stand_alone(trained: dict[str, Path]) -> None:
    run = Run(trained["l0-s1"])
    line = line_of(run)
    assert (line["name"], line["seed"]) == ("l0", 1)
    again = config_of({"name": line["name"], "seed": line["seed"], **line["options"]})
    assert again.fingerprint() == line["config"] == config_of(run.config()).fingerprint()
    assert line_of(Run(trained["l0"]))["config"] == line["config"]
    assert line_of(Run(trained["dense"]))["config"] != line["config"]


def test_the_curve_by_epoch(trained: dict[str, Path]) -> None:
    run = Run(trained["l0"])
    curve, records = line_of(run)["curve"], run.metrics()
    assert curve["epoch"] == [1, 2]
    for i, record in enumerate(records):
        assert curve["u_loss"][i] == pytest.approx(record["u"]["loss"], rel=1e-4)
        assert curve["w_accuracy"][i] == pytest.approx(record["w"]["accuracy"], rel=1e-4)
        assert curve["gap"][i] == pytest.approx(record["gap"], rel=1e-4)
        assert all(len(f"{column[i]:.10g}".replace(".", "").lstrip("0")) <= 5 for column in curve.values())
    assert "u_loss" not in line_of(Run(trained["dense"]))["curve"]


def test_of_two_records_of_one_epoch_the_later_counts(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    run.append({"epoch": 1, "loss": 123.0})
    run.append({"epoch": "two", "loss": 4.0})
    curve = line_of(run)["curve"]
    assert curve["epoch"] == [1, 2]
    assert curve["loss"][0] == 123.0
    assert curve["u_loss"][0] is None


def test_a_dense_run_says_the_norms_once(trained: dict[str, Path]) -> None:
    line = line_of(Run(trained["dense"]))
    assert list(line["channel_norms"]) == ["w"]
    outcome = Record.of_line(line).outcome
    assert outcome is not None
    assert outcome.norms_u == outcome.norms_w != {}


def test_nothing_names_the_machine(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    about = {**run.about(), "host": platform.node(), "folder": str(run.folder), "user": "somebody"}
    (run.folder / "about.json").write_text(json.dumps(about))
    config = run.folder / "config.toml"
    path = json.dumps(str(run.folder / "images"))
    config.write_text(config.read_text().replace('name = "digits"', f'name = "folder"\npath = {path}'))
    run.save_runtime({"file_bytes": 10, "threads": 1, "engines": [], "title": str(run.folder)})
    line = line_of(run)
    assert line["options"]["data"]["name"] == "folder"
    text = json.dumps(line)
    for said in (str(run.folder), platform.node(), "somebody", "host"):
        assert said not in text
    assert line["about"]["versions"]["torch"] == run.about()["versions"]["torch"]
    outcome = Record.of_line(line).outcome
    assert outcome is not None
    assert outcome.runtime is not None


def test_a_loss_that_is_not_finite_is_null(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    result = run.result()
    assert result is not None
    result["test"]["u"]["loss"] = float("inf")
    (run.folder / "result.json").write_text(json.dumps(result))
    line = line_of(run)
    assert line["test"]["u"]["loss"] is None
    outcome = Record.of_line(line).outcome
    assert outcome is not None
    assert isnan(outcome.u.loss)


def test_an_unfinished_run(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    (run.folder / "result.json").unlink()
    with pytest.raises(ValueError, match="is not finished: continue with rvsm resume"):
        line_of(run)


def test_a_line_is_short(trained: dict[str, Path]) -> None:
    line = line_of(Run(trained["l0"]))
    assert len(json.dumps(line, separators=(",", ":"))) < 10_000


def test_layers_that_are_no_table_are_told(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    (run.folder / "result.json").write_text(json.dumps({**(run.result() or {}), "layers": [1, 2]}))
    with pytest.raises(ValueError, match=r"layers should be an object but is \[1, 2\]"):
        line_of(run)


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
