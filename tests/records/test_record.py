"""One record, whether it is read from a folder or from a line of a results file."""

import json
import shutil
from pathlib import Path

import pytest

from rvsm.collect import collect, read
from rvsm.records import Record, Run
from rvsm.records.values import COUNT, FRACTION, INTEGER, NON_NEGATIVE, NUMBERS, SHAPE

FINISHED = Path(__file__).parents[1] / "compatibility" / "version-0.1" / "finished"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(FINISHED, tmp_path / "run")))


def test_a_line_says_what_the_folder_says(run: Run, tmp_path: Path) -> None:
    engines = [
        {"engine": engine, "precision": "float32", "batch": batch, "milliseconds": took}
        for engine, batch, took in (
            ("PyTorch", 1, 9.0),
            ("PyTorch", 8, 4.0),
            ("rvsm", 1, 1.0),
            ("rvsm", 8, 2.0),
        )
    ]
    run.save_runtime({"file_bytes": 1234, "threads": 1, "engines": engines})
    collect([run], tmp_path / "a.jsonl")
    (line,), folder = read(tmp_path / "a.jsonl"), Record.of_run(run, strict=True)
    assert (line.name, line.seed, line.method) == (folder.name, folder.seed, folder.method)
    assert line.images_per_second == pytest.approx(folder.images_per_second, rel=1e-5)
    one, other = line.outcome, folder.outcome
    assert one is not None
    assert other is not None
    for name in ("epochs", "steps", "test_images", "weights", "parameters", "nonzeros", "images", "runtime"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("minutes", "sparsity", "sparsity_of_all", "multiplications_saved", "speedup"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-5), name
    assert other.speedup == 2.0, "at the largest batch"
    assert one.u.accuracy == pytest.approx(other.u.accuracy, rel=1e-5)
    assert {name: layer.shape for name, layer in one.layers.items()} == {
        name: layer.shape for name, layer in other.layers.items()
    }
    assert [e.epoch for e in line.evaluations] == [e.epoch for e in folder.evaluations] == [1, 2, 3, 4, 5, 6]
    for mine, theirs in zip(line.evaluations, folder.evaluations, strict=True):
        for name in ("learning_rate", "loss", "loss_w", "loss_u", "accuracy_w", "accuracy_u", "sparsity", "gap"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=1e-4, abs=1e-12), name


def test_phases_of_a_target(run: Run) -> None:
    phases = Record.of_run(run).phases
    assert list(phases) == ["ramp", "hold", "heal"]
    assert phases["ramp"][0] == 0
    assert phases["heal"][1] == 6


def test_one_damaged_value_makes_the_result_a_complaint_or_an_error(run: Run) -> None:
    result = run.result() or {}
    (run.folder / "result.json").write_text(json.dumps({**result, "nonzeros": -1}))
    record = Record.of_run(run)
    assert record.outcome is None
    assert record.complaints == ("result.json is damaged: nonzeros should be an integer ≥ 0 but is -1",)
    with pytest.raises(ValueError, match=r"run/result\.json is damaged: nonzeros should be an integer"):
        Record.of_run(run, strict=True)


@pytest.mark.parametrize("value", [None, "1", True, float("nan"), float("inf"), 10**400, [], {}])
def test_what_is_no_number(value: object) -> None:
    for kind in (COUNT, FRACTION, INTEGER, NON_NEGATIVE):
        assert kind.read(value) is None
        with pytest.raises(ValueError, match=r"^a\.b should be .* but is "):
            kind.needed({"a": {"b": value}}, "a", "b")


def test_lists_are_of_one_kind() -> None:
    assert NUMBERS.read([1, 2.5]) == (1, 2.5)
    assert SHAPE.read([3, 1]) == (3, 1)
    assert (NUMBERS.read([1, "2"]), SHAPE.read([3, 0]), SHAPE.read("33")) == (None, None, None)
