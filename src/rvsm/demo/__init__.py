"""Train a small network on the digits with several methods, and compare them in the form of the paper's Table 1."""

from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from rich.console import Console

from rvsm.bench import OURS, measure
from rvsm.config import Config, read_config
from rvsm.cores import usable_cores
from rvsm.records import Run
from rvsm.records.values import inside
from rvsm.report import report, rows, table
from rvsm.train import run_all

BASELINES = ("PyTorch", "PyTorch, channels last")
"""The engines that the packed networks are compared with; ``rvsm bench`` has more engines and takes longer."""
_BATCH, _THREADS = 64, 1


def configs(*, epochs: int | None = None) -> list[Config]:
    """Return the rows of the table: the files in this folder."""
    flags = [] if epochs is None else ["--training.epochs", str(epochs)]
    with as_file(files("rvsm.demo") / "rows") as folder:
        return [read_config(file, flags) for file in sorted(folder.glob("*.toml"))]


def demo(console: Console, *, seed: int = 0, out: Path, epochs: int | None = None, jobs: int | None = None) -> Path:
    """Train with all methods, pack and time the networks, print the table, write the page and return its path.

    Finished runs in ``out`` are not repeated. With ``epochs``, the training is shorter. ``jobs`` networks are trained
    at once, each with one thread; by default, one on each core.
    """
    jobs = usable_cores() if jobs is None else jobs
    runs = run_all(configs(epochs=epochs), seeds=[seed], runs=out, console=console, brief=True, jobs=jobs)
    for run in runs:
        if not _is_ours(run.runtime() or {}):
            measure(run.folder, batches=(_BATCH,), engines=[*BASELINES, OURS], threads=_THREADS, rounds=3)
    console.print(table(rows(runs)))
    console.print(_explanation(runs), highlight=False)
    return report(runs, out=out)


def _explanation(runs: Sequence[Run]) -> str:
    images = (runs[0].result() or {}).get("test_images", 0)
    point = 100 / max(images, 1)
    return (
        "w: the weights at the end of training. u: the sparse network, packed into a file and run with one thread on"
        f" batches of {_BATCH}. Speed is relative to the faster of {' and '.join(BASELINES)}. One of the {images} test"
        f" images is {point:.2f} points."
    )


def _is_ours(measured: Mapping[str, Any]) -> bool:
    """Return whether speeds were measured by the demo, and not by ``rvsm bench`` in the meantime."""
    timings = measured.get("engines")
    engines = {str(inside(timing, "engine")) for timing in (timings if isinstance(timings, list) else ())}
    return (measured.get("batch"), measured.get("threads"), engines) == (_BATCH, _THREADS, {*BASELINES, OURS})
