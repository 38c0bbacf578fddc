"""The table against a computation by hand."""

import json
import re
import runpy
from collections.abc import Callable
from io import StringIO
from math import inf, isnan, nan, sqrt
from pathlib import Path

import pytest
from rich.console import Console

from rvsm.records import Run
from rvsm.report import markdown, rows, table
from rvsm.report.configurations import configurations
from rvsm.report.statistics import Mean
from rvsm.report.table import as_json

by_hand = runpy.run_path(str(Path(__file__).with_name("made.py")))
result, timed = by_hand["result"], by_hand["timed"]


def made(
    folder: Path, name: str, seed: int, *, u: float | None = 0.9, lam: float = 1.0, toml_name: str = "", more: str = ""
) -> Run:
    config = f"name = {json.dumps(toml_name or name)}\nseed = {seed}\n[penalty]\nname = 'l0'\nlam = {lam}\n{more}"
    run = Run.create(folder / f"{name}-s{seed}-{lam}", config=config, about={})
    if u is not None:
        (run.folder / "result.json").write_text(json.dumps(result(u)))
    return run


def test_mean_and_sample_deviation_over_seeds(tmp_path: Path) -> None:
    runs = [made(tmp_path, "a", seed, u=u) for seed, u in enumerate((0.90, 0.92, 0.97))]
    (row,) = rows([*runs, made(tmp_path, "a", 3, u=None)])
    assert (row.name, row.seeds, row.unfinished) == ("a", 3, 1)
    assert row.accuracy_u.mean == pytest.approx(0.93)
    assert row.accuracy_u.std == pytest.approx(sqrt((0.03**2 + 0.01**2 + 0.04**2) / 2))
    assert row.accuracy_w == Mean(pytest.approx(0.95), pytest.approx(0.0), 3)
    assert (row.sparsity.mean, row.sparsity_of_all.mean) == (pytest.approx(0.8), pytest.approx(0.75))
    assert (row.nonzeros.mean, row.minutes.mean) == (1250, 1.5)


def test_the_deviation_of_what_is_not_finite_is_not_a_number() -> None:
    for odd in (nan, inf):
        mean = Mean.of([0.5, odd])
        assert mean.std is not None
        assert isnan(mean.std)


def test_one_seed_has_no_deviation_and_none_has_no_mean(tmp_path: Path) -> None:
    one, none = rows([made(tmp_path, "one", 0), made(tmp_path, "none", 0, u=None)])
    assert one.accuracy_u == Mean(0.9, None, 1)
    assert (none.accuracy_u.text(), none.seeds, none.unfinished) == ("–", 0, 1)


def test_runs_of_one_name_with_other_options_have_rows_of_their_own(tmp_path: Path) -> None:
    found = rows([made(tmp_path, "a", 0), made(tmp_path, "a", 0, lam=2.0), made(tmp_path, "a", 1)])
    assert [(row.name, row.seeds) for row in found] == [("a (penalty.lam 1.0)", 2), ("a (penalty.lam 2.0)", 1)]


def test_options_of_the_machine_make_no_row_of_their_own_but_other_images_do(tmp_path: Path) -> None:
    (row,) = rows([made(tmp_path, "a", seed, more=f"[training]\nthreads = {1 + seed}\n") for seed in (0, 1)])
    assert (row.name, row.seeds) == ("a", 2)
    found = rows([made(tmp_path, "b", seed, more=f"[data]\npath = 'photos-{seed}'\n") for seed in (0, 1)])
    assert [row.name for row in found] == ["b (data.path photos-0)", "b (data.path photos-1)"]


def test_speeds_of_one_measurement_only_have_a_mean(tmp_path: Path) -> None:
    runs = [made(tmp_path, "a", seed) for seed in (0, 1)]
    for run in runs:
        run.save_runtime(timed(2.0, threads=1))
    assert rows(runs)[0].speedup == Mean(2.0, 0.0, 2)
    runs[1].save_runtime(timed(2.0, threads=2))
    assert not rows(runs)[0].speedup


def test_seeds_may_be_negative(tmp_path: Path) -> None:
    (row,) = rows([made(tmp_path, "a", -1), made(tmp_path, "a", -2), made(tmp_path / "elsewhere", "a", -2)])
    assert row.seeds == 2


def test_a_run_counts_once(tmp_path: Path) -> None:
    run = made(tmp_path, "a", 0)
    twin = made(tmp_path / "elsewhere", "a", 0, u=0.5)
    (row,) = rows([run, Run(run.folder), twin])
    assert row.accuracy_u == Mean(0.9, None, 1)


def test_of_twins_the_finished_one_counts(tmp_path: Path) -> None:
    (row,) = rows([made(tmp_path, "a", 0, u=None), made(tmp_path / "elsewhere", "a", 0, u=0.5)])
    assert (row.accuracy_u, row.unfinished) == (Mean(0.5, None, 1), 0)


def test_the_table_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    runs = [made(tmp_path, "rvsm-l0-90", seed, u=u) for seed, u in enumerate((0.9, 0.92))]
    runs.append(made(tmp_path, "rvsm-l0-90", 2, u=None))
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table(rows([*runs, made(tmp_path, "[red]sgd", 0)])))
    text = captured.get()
    assert re.search(r"rvsm-l0-90 +2 of 3 +95.00 ± 0.00 +91.00 ± 1.41 +80.00 +75.00 +1.50", text)
    assert "rvsm-l0-90" in text
    assert "[red]sgd" in text, "a name is not markup"
    assert max(map(len, text.splitlines())) <= 80


def test_markdown_and_json(tmp_path: Path) -> None:
    found = rows([made(tmp_path, "x", 0, toml_name="a|b<c>"), made(tmp_path, "y", 0, u=None)])
    lines = markdown(found).splitlines()
    assert lines[0].startswith("| configuration | runs | accuracy of w, % |")
    assert lines[2].startswith(r"| a\|b&lt;c> | 1 | 95.00 | 90.00 | 80.00 | 75.00 | 1,250 | 1.50 |")
    assert lines[3].startswith("| y | 0 of 1 | – | – |")
    table_ = json.loads(as_json(found))
    assert table_[0]["accuracy_u"] == {"mean": 0.9, "std": None, "count": 1}
    assert table_[1]["accuracy_u"] is None


@pytest.mark.parametrize("odd", ["NaN", "Infinity", '"much"', "null", "true", "[]", "1e400", "1" + "0" * 400, "2.5"])
def test_a_result_with_an_odd_number_is_not_counted(tmp_path: Path, odd: str) -> None:
    run = made(tmp_path, "a", 0, u=0.875)
    file = run.folder / "result.json"
    file.write_text(file.read_text().replace("0.875", odd))
    (row,), notes = configurations([run])
    assert (row.seeds, row.unfinished) == (0, 1)
    assert json.loads(as_json([row]))[0]["accuracy_u"] is None
    assert "result.json is damaged: test.u.accuracy should be a fraction in [0, 1] but is" in notes[0]


def test_trained_runs_give_what_their_results_say(trained: dict[str, Path], copy: Callable[..., Run]) -> None:
    runs = [Run(trained[name]) for name in ("l0-80", "dense", "l0-80-s1")]
    sparse, dense = rows(runs)
    accuracies = [run.result()["test"]["u"]["accuracy"] for run in runs if run.config()["name"] == "l0-80"]  # type: ignore[index]
    assert sparse.accuracy_u.mean == pytest.approx(sum(accuracies) / 2)
    assert sparse.accuracy_u.std == pytest.approx(abs(accuracies[0] - accuracies[1]) / sqrt(2))
    assert sparse.sparsity.mean == pytest.approx(0.8, abs=1e-3)
    assert dense.sparsity == Mean(0.0, None, 1)


def test_size_and_speed_are_shown_where_a_network_was_packed(tmp_path: Path) -> None:
    run = made(tmp_path, "a", 0)
    assert "file, kB" not in markdown(rows([run]))
    run.save_runtime(timed(13.44))
    assert "| 22.2 | 13.4 |" in markdown(rows([run]))
    console = Console(width=80, file=StringIO())
    console.print(table(rows([run])))
    assert "13.4" in console.file.getvalue()
    (run.folder / "runtime.json").write_text('{"file_bytes": "x"}')
    (row,), notes = configurations([run])
    assert "file, kB" not in markdown([row])
    assert notes == ["a-s0-1.0: runtime.json is damaged: file_bytes should be an integer ≥ 0 but is 'x'"]


def test_multiplications_saved_reach_the_terminal(tmp_path: Path) -> None:
    run = made(tmp_path, "a", 0)
    (run.folder / "result.json").write_text(json.dumps(result(0.9, multiplications_saved=0.625)))
    console = Console(width=80, file=StringIO())
    console.print(table(rows([run])))
    assert re.search(r"accuracy +accuracy +zeros +of all +saved", console.file.getvalue())
    assert re.search(r"a +95.00 +90.00 +80.00 +75.00 +62.50 +1.50", console.file.getvalue())
    assert "multiplications by zero" in " ".join(console.file.getvalue().split())


def test_a_terminal_has_room_for_the_name_of_a_configuration(tmp_path: Path) -> None:
    runs = [made(tmp_path, "rvsm-l0-90", seed, u=u) for seed, u in enumerate((0.9, 0.92, None))]
    for run in runs[:2]:
        (run.folder / "result.json").write_text(json.dumps(result(0.9, multiplications_saved=0.625)))
        run.save_runtime(timed(13.44))
    console = Console(width=80, file=StringIO())
    console.print(table(rows(runs)))
    lines = console.file.getvalue().splitlines()
    assert any(
        re.search(r"^ *rvsm-l0-90 +2 of 3 +95.00 ± 0.00 +90.00 ± 0.00 +80.00 +62.50 +22.2 +13.4", x) for x in lines
    )
    assert max(map(len, lines)) <= 80
