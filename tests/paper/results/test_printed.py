from pathlib import Path

import pytest

from rvsm.paper.results.printed import TABLE_1, TABLE_2, TABLES, is_of_the_paper, label

FILES = Path(__file__).parents[3] / "experiments" / "cpu"


def test_the_figures_are_those_of_the_paper() -> None:
    printed = {
        row.experiment: (row.printed.accuracy, row.printed.sparsity)
        for table in TABLES
        for row in table.rows
        if row.printed
    }
    assert printed["vgg16-base"] == (93.82, 0)
    assert printed["vgg16-l1"] == (93.7, 35.68)
    assert printed["vgg16-tl1"] == (93.07, 63.34)
    assert printed["vgg16-l0"] == printed["vgg16-l0-published"] == printed["vgg16-l0-unscaled"] == (92.54, 86.89)
    assert printed["resnet18-sgd"] == (95.07, 0)
    assert printed["resnet18-admm"] == printed["resnet18-admm-published"] == (94.84, 47.08)
    assert printed["resnet18-rvsm-l0"] == printed["resnet18-rvsm-l0-published"] == (94.89, 93.70)


def test_what_the_paper_loses() -> None:
    assert [TABLE_1.lost(row) for row in TABLE_1.rows[:4]] == [0.0, 0.12, 0.75, 1.28]
    assert TABLE_2.lost(TABLE_2.rows[3]) == 0.18
    assert TABLE_2.lost(TABLE_2.rows[-1]) is None


def test_each_experiment_has_a_file_and_each_file_a_row() -> None:
    names = [row.experiment for table in TABLES for row in table.rows]
    assert len(set(names)) == len(names)
    assert sorted(names) == sorted(file.stem for file in FILES.glob("*.toml"))


def test_names_are_told_apart_and_short() -> None:
    for table in TABLES:
        shorts = [row.short for row in table.rows]
        assert len(set(shorts)) == len(shorts)
        assert max(map(len, shorts)) <= 16
        assert all(row.experiment.startswith(f"{table.network}-") for row in table.rows)
    assert label("resnet18-admm-937") == "ADMM, target 93.7 %"


@pytest.mark.parametrize(
    ("names", "expected"),
    [({"vgg16-l0"}, True), ({"resnet18-rvsm-l0-937", "fastnet-dense"}, False), (set(), False)],
)
def test_which_collections_repeat_the_paper(names: set[str], expected: bool) -> None:
    assert is_of_the_paper(names) is expected
