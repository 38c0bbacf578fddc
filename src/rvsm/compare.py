"""Run what is missing from several configurations, and compare the results."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from rvsm.config import Config
from rvsm.report import report, rows, table
from rvsm.train import run_all


def compare(
    configs: Sequence[Config], *, seeds: Iterable[int], runs: Path, out: Path, console: Console, jobs: int = 1
) -> Path:
    """Train each configuration with each seed unless it is finished, print the table, and return the page's path.

    Args:
        configs: one configuration for each row of the table.
        seeds: the seeds of the runs behind each row.
        runs: the folder that holds the folders of the runs.
        out: the folder for the table, the page and the pictures.
        console: where to print.
        jobs: how many runs are trained at once.

    """
    done = run_all(configs, seeds=seeds, runs=runs, console=console, jobs=jobs)
    console.print(table(rows(done)))
    return report(done, out=out)
