"""What the sentences say of runs whose numbers are known."""

import json
import runpy
from collections.abc import Sequence
from pathlib import Path

import pytest

from rvsm.records import Run
from rvsm.report.configurations import configurations
from rvsm.report.summary import summary

result = runpy.run_path(str(Path(__file__).with_name("made.py")))["result"]


def made(folder: Path, method: str, accuracies: Sequence[float | None], sparsity: float = 0.9) -> list[Run]:
    """Return runs of a method, one for each accuracy; None is a run that is not finished."""
    runs = []
    for seed, accuracy in enumerate(accuracies):
        config = f"name = '{method}'\nseed = {seed}\n[method]\nname = '{method}'\n[model]\nname = 'net'\n"
        run = Run.create(folder / f"{method}-s{seed}", config=f"{config}[data]\nname = 'digits'\n", about={})
        if accuracy is not None:
            zeros = 0.0 if method == "dense" else sparsity
            (run.folder / "result.json").write_text(json.dumps(result(accuracy, sparsity=zeros)))
        runs.append(run)
    return runs


def said(runs: Sequence[Run]) -> str:
    return summary(configurations(runs)[0]).replace("\u00a0", " ")


def test_one_run(tmp_path: Path) -> None:
    assert said(made(tmp_path, "magnitude", [0.9])) == (
        "Magnitude pruning, net on digits: 90.00 % of the 5,000 sparsified weights are zero (75.00 % of all"
        " parameters). The sparse network u classifies 90.00 % of the test images correctly, the weights w at the end"
        " of training 95.00 %. The spread of a single seed is unknown: small differences may be chance."
    )


@pytest.mark.parametrize(
    ("dense", "sparse", "difference"),
    [
        ((0.95,), (0.30,), "65.00 points more than rvsm; one seed each cannot show whether this is chance."),
        ((0.90,), (0.91,), "1.00 points less than rvsm; one seed each cannot show whether this is chance."),
        ((0.95, 0.95), (0.90,), "5.00 points more than rvsm; seeds that agree cannot show whether this is chance."),
        ((0.90, 0.92), (0.90,), "1.00 points more than rvsm, which may be chance with so few seeds."),
        ((0.950, 0.951), (0.90,), "5.05 points more than rvsm."),
        ((0.90,), (0.90,), "as much as rvsm."),
        ((0.95, 0.96), (0.90, 0.91), "5.00 points more than rvsm."),
        ((0.95, 0.97), (0.90, 0.96), "3.00 points more than rvsm, which may be chance with so few seeds"),
        # 1.5 points are more than the two spreads together, 1.41, but two seeds each leave four times the error open
        ((0.950, 0.964), (0.935, 0.949), "1.50 points more than rvsm, which may be chance with so few seeds"),
    ],
)
def test_a_difference_is_called_one_if_the_seeds_can_tell(
    dense: Sequence[float], sparse: Sequence[float], difference: str, tmp_path: Path
) -> None:
    text = said([*made(tmp_path, "dense", dense), *made(tmp_path, "rvsm", sparse)])
    assert difference in text
    assert ("small differences may be chance" in text) == (min(len(dense), len(sparse)) == 1)
    assert ("± is one standard deviation" in text) == (max(len(dense), len(sparse)) > 1)


def test_runs_that_are_not_finished_are_counted(tmp_path: Path) -> None:
    text = said([*made(tmp_path, "dense", [0.95, None]), *made(tmp_path, "rvsm", [None])])
    assert text.startswith("1 finished run of 2 configurations: net on digits.")
    assert "2 runs are not finished." in text
