"""Run what is missing from several configurations, and compare the results."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from rvsm.config import Config
from rvsm.report import report, rows, table
from rvsm.train import run_all
from rvsm.train.ranks import ALONE, Ranks


def compare(
    configs: Sequence[Config],
    *,
    seeds: Iterable[int],
    runs: Path,
    out: Path,
    console: Console,
    jobs: int = 1,
    ranks: Ranks = ALONE,
) -> Path | None:
    """Train what is missing, as `run_all` does, print the table, write `report` into ``out``, and return its page.

    Of several processes, only the first one prints and writes.
    """
    done = run_all(configs, seeds=seeds, runs=runs, console=console, jobs=jobs, ranks=ranks)
    if not ranks.first:
        return None
    console.print(table(rows(done)))
    return report(done, out=out)
