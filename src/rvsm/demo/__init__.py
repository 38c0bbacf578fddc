"""Train one small network on the digits by several methods, and compare them in the form of the paper's Table 1."""

import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from rich.console import Console

from rvsm.bench import OURS, measure
from rvsm.config import Config, config_of, differences, read_config
from rvsm.records import Run, folder_of
from rvsm.report import report, rows, table
from rvsm.train import run_all

BASELINES = ("PyTorch", "PyTorch, channels last")
"""What the packed networks are timed against here; ``rvsm bench`` has more engines, and takes longer."""


def configs(*, epochs: int | None = None) -> list[Config]:
    """Return the rows of the table: the files in this folder."""
    flags = [] if epochs is None else ["--training.epochs", str(epochs)]
    with as_file(files("rvsm.demo") / "rows") as folder:
        return [read_config(file, flags) for file in sorted(folder.glob("*.toml"))]


def demo(console: Console, *, seed: int = 0, out: Path, epochs: int | None = None) -> Path:
    """Train by all methods, pack and time the networks, print the table, write the page and return its path.

    Args:
        console: where to print.
        seed: of the weights, the batches and the validation images.
        out: the folder to write to; runs that it holds already are not run again.
        epochs: a shorter training, to try it.

    """
    wanted = configs(epochs=epochs)
    for config in wanted:
        _forget_older(config.with_seed(seed), out)
    runs = run_all(wanted, seeds=[seed], runs=out, console=console, brief=True)
    for run in runs:
        if run.runtime() is None:
            measure(run.folder, engines=[*BASELINES, OURS], threads=1, rounds=3)
    console.print(table(rows(runs)))
    console.print(_explanation(runs), highlight=False)
    return report(runs, out=out)


def _explanation(runs: Sequence[Run]) -> str:
    images = (runs[0].result() or {}).get("test_images", 0)
    point = 100 / max(images, 1)
    return (
        f"w are the weights at the end of training, u is the sparse network, packed into a file and run with one thread"
        f" on batches of 64; speed is against the faster of {' and '.join(BASELINES)}. One of the {images} test images"
        f" is {point:.2f} points."
    )


def _forget_older(config: Config, out: Path) -> None:
    """Remove the demo's own run of another version, whose options were different."""
    folder = folder_of(out, config.name, config.seed)
    if (folder / "config.toml").is_file() and not _is_same(Run(folder).config(), config):
        shutil.rmtree(folder)


def _is_same(table: Mapping[str, Any], config: Config) -> bool:
    try:
        return not differences(config_of(table), config)
    except ValueError:  # it has an option that is no longer there
        return False
