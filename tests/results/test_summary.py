import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from rvsm.config import config_of
from rvsm.records import Run
from rvsm.results import summarize
from rvsm.results.reading import summary_of


def test_the_numbers_of_the_result(trained: dict[str, Path]) -> None:
    run = Run(trained["l0"])
    result, line = run.result(), summarize(run)
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
    line = summarize(run)
    assert (line["name"], line["seed"]) == ("l0", 1)
    again = config_of({"name": line["name"], "seed": line["seed"], **line["options"]})
    assert again.fingerprint() == line["config"] == config_of(run.config()).fingerprint()
    assert summarize(Run(trained["l0"]))["config"] == line["config"]
    assert summarize(Run(trained["dense"]))["config"] != line["config"]


def test_the_curve_by_epoch(trained: dict[str, Path]) -> None:
    run = Run(trained["l0"])
    curve, records = summarize(run)["curve"], run.metrics()
    assert curve["epoch"] == [1, 2]
    for i, record in enumerate(records):
        assert curve["u_loss"][i] == pytest.approx(record["u"]["loss"], rel=1e-4)
        assert curve["w_accuracy"][i] == pytest.approx(record["w"]["accuracy"], rel=1e-4)
        assert curve["gap"][i] == pytest.approx(record["gap"], rel=1e-4)
        assert all(len(f"{column[i]:.10g}".replace(".", "").lstrip("0")) <= 5 for column in curve.values())
    assert "u_loss" not in summarize(Run(trained["dense"]))["curve"]


def test_of_two_records_of_one_epoch_the_later_counts(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    run.append({"epoch": 1, "loss": 123.0})
    run.append({"epoch": "two", "loss": 4.0})
    curve = summarize(run)["curve"]
    assert curve["epoch"] == [1, 2]
    assert curve["loss"][0] == 123.0
    assert curve["u_loss"][0] is None


def test_a_dense_run_says_the_norms_once(trained: dict[str, Path]) -> None:
    line = summarize(Run(trained["dense"]))
    assert list(line["channel_norms"]) == ["w"]
    summary = summary_of(line)
    assert summary.norms_u == summary.norms_w != {}


def test_nothing_names_the_machine(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    about = {**run.about(), "host": platform.node(), "folder": str(run.folder), "user": "somebody"}
    (run.folder / "about.json").write_text(json.dumps(about))
    config = run.folder / "config.toml"
    path = json.dumps(str(run.folder / "images"))
    config.write_text(config.read_text().replace('name = "digits"', f'name = "folder"\npath = {path}'))
    run.save_runtime({"file_bytes": 10, "threads": 1, "engines": [], "title": str(run.folder)})
    line = summarize(run)
    assert line["options"]["data"]["name"] == "folder"
    text = json.dumps(line)
    for said in (str(run.folder), platform.node(), "somebody", "host"):
        assert said not in text
    assert line["about"]["versions"]["torch"] == run.about()["versions"]["torch"]
    assert summary_of(line).runtime is not None


def test_a_loss_that_is_not_finite_is_null(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    result = run.result()
    assert result is not None
    result["test"]["u"]["loss"] = float("inf")
    (run.folder / "result.json").write_text(json.dumps(result))
    line = summarize(run)
    assert line["test"]["u"]["loss"] is None
    assert summary_of(line).u.loss != summary_of(line).u.loss


def test_an_unfinished_run(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    (run.folder / "result.json").unlink()
    with pytest.raises(ValueError, match="is not finished: go on with rvsm resume"):
        summarize(run)


def test_a_line_is_short(trained: dict[str, Path]) -> None:
    line = summarize(Run(trained["l0"]))
    assert len(json.dumps(line, separators=(",", ":"))) < 10_000


def test_layers_that_are_no_table_are_told(copy: Callable[..., Run]) -> None:
    run = copy("l0")
    (run.folder / "result.json").write_text(json.dumps({**(run.result() or {}), "layers": [1, 2]}))
    with pytest.raises(ValueError, match=r"layers should be an object but is \[1, 2\]"):
        summarize(run)
