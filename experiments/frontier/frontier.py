"""Accuracy at equal sparsity: train what is missing of the grid, collect it, and write its table and picture.

    python experiments/frontier/frontier.py train --data cifar10.tar.xz --jobs 2     # stop and start it at any time
    python experiments/frontier/frontier.py time                                      # while nothing else runs
    python experiments/frontier/frontier.py table                                     # from frontier.jsonl here

A file of this folder is a method; the grid of sparsities, scopes, schedules, optimizers and seeds is here. Seeds come
in turn, so that an unfinished grid has all methods with the first seed before the second begins. `time` measures the
networks of the first seed at batch 64, the sparse ones packed and the dense ones in the fastest engine. The dense
networks of several widths then show what a dense network reaches that is as fast as a sparse one.
"""

import argparse
import math
import os
import statistics
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from rvsm.bench import OURS, measure
from rvsm.collect import by_name, collect, read
from rvsm.config import read_config
from rvsm.files import write_text
from rvsm.markdown import between_marks, pipe_table
from rvsm.models import fastnet
from rvsm.records import Record, Run, folder_of
from rvsm.train import run_all
from rvsm.train.recorder import StoppedError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LINES = HERE / "frontier.jsonl"  # not in results/, whose lines have a file each; here the grid has them
DOCUMENT, README = ROOT / "docs" / "results.md", ROOT / "README.md"
PICTURE = ROOT / "results" / "pictures" / "frontier.png"
SPARSITIES = (0.98, 0.95, 0.99, 0.9)
METHODS = {
    "rvsm": "RVSM, gradient from w to u (default)",
    "rvsm-paper": "RVSM, gradient at w (the paper's)",
    "straight-through": "RVSM, gradient at u (straight-through)",
    "magnitude": "gradual magnitude pruning",
    "acdc": "AC/DC",
    "narrow": "dense, as many weights",
}
RESNET = {"rvsm": METHODS["rvsm"], "rvsm-paper": METHODS["rvsm-paper"], "magnitude": METHODS["magnitude"]}
TRIALS = {  # of RVSM with the same sparsity in every layer, where zeros cannot move between layers
    "ramp-0.7": ("RVSM, ramp over 70 % of the steps", ["--budget.ramp", "0.7"]),
    "pull-300": ("RVSM, pull 300", ["--method.pull", "300.0"]),
    "pull-30": ("RVSM, pull 30", ["--method.pull", "30.0"]),
    "at-u": ("RVSM, gradient at u", ["--method.gradient", "u"]),
}
ADAMW = {"dense": "dense", "rvsm": METHODS["rvsm"], "magnitude": METHODS["magnitude"]}
WIDTHS = (0.1875, 0.125)  # more dense networks; those with as many weights as a sparse one are narrower still
BATCH = 64
MISSING = "–"
DENSE_ENGINES = ("ONNX Runtime", "OpenVINO")


def grid() -> Iterator[tuple[Path, list[str]]]:
    """Yield the file and the flags of each configuration."""
    yield HERE / "fastnet-dense.toml", ["--name", "fastnet-dense"]
    for sparsity in SPARSITIES:
        percent = f"{100 * sparsity:g}"
        for method in METHODS:
            if method == "narrow":
                width = ["--model.width", repr(narrower(sparsity))]
                yield HERE / "fastnet-dense.toml", ["--name", f"fastnet-narrow-{percent}", *width]
            else:
                flags = ["--name", f"fastnet-{method}-{percent}", "--budget.sparsity", repr(sparsity)]
                yield HERE / f"fastnet-{method}.toml", flags
    for width in WIDTHS:
        yield HERE / "fastnet-dense.toml", ["--name", f"fastnet-width-{width}", "--model.width", repr(width)]
    for method in ADAMW:
        # Of 0.003, 0.01 and 0.03, the dense network reached 81.0, 82.6 and 82.4 % of the validation images.
        change = ["--optimizer.name", "adamw", "--optimizer.lr", "0.01", "--optimizer.weight_decay", "0.05"]
        yield HERE / f"fastnet-{method}.toml", ["--name", f"fastnet-{method}-adamw", *change]
    for scope in ("layer", "global"):
        for schedule in ("step", "cosine"):
            for method in RESNET:
                change = ["--budget.scope", scope, "--schedule.name", schedule]
                yield HERE / f"resnet18-{method}.toml", ["--name", f"resnet18-{method}-{scope}-{schedule}", *change]
    for schedule in ("step", "cosine"):
        for trial, (_, change) in TRIALS.items():
            flags = ["--name", f"resnet18-trial-{trial}-layer-{schedule}", "--schedule.name", schedule, *change]
            yield HERE / "resnet18-rvsm.toml", flags


def narrower(sparsity: float) -> float:
    """Return the width at which the dense fast network has as many parameters as the sparse one has non-zeros."""

    def trained(width: float) -> tuple[int, int]:
        sizes = [p.numel() for p in fastnet(width=width).parameters() if p.requires_grad]
        matrices = [p.numel() for p in fastnet(width=width).parameters() if p.requires_grad and p.ndim > 1]
        return sum(sizes), sum(matrices)

    everything, sparsified = trained(0.25)
    wanted = everything - sparsity * sparsified
    widths = [k / 1024 for k in range(4, 256)]
    return min(widths, key=lambda width: abs(trained(width)[0] - wanted))


def most_seeds(name: str) -> float:
    """Return how many seeds a configuration has at most: the longer ones two, and trials one."""
    if not name.startswith("resnet18"):
        return math.inf
    return 1 if name.startswith("resnet18-trial") else 2


def train(options: argparse.Namespace) -> None:
    """Train what has no line yet, one seed after another, and collect what is finished."""
    warnings.simplefilter("ignore", UserWarning)  # the whitening layer is frozen in all of them
    configs = [
        read_config(file, [*flags, "--data.path", str(options.data), "--training.threads", "1"])
        for file, flags in grid()
        if any(name in flags[1] for name in options.only)
    ]
    known = {(run.name, run.fingerprint, run.seed) for run in (read(LINES) if LINES.exists() else [])}
    for seed in range(options.seeds):
        missing = [c for c in configs if seed < most_seeds(c.name) and (c.name, c.fingerprint(), seed) not in known]
        try:
            run_all(missing, seeds=[seed], runs=options.runs, console=Console(), jobs=options.jobs)
        finally:
            folders = [folder_of(options.runs, c.name, seed) for c in missing]
            finished = [Run(folder) for folder in folders if (folder / "result.json").exists()]
            if finished:
                collect(finished, LINES)


def measured(options: argparse.Namespace) -> None:
    """Time the networks of the first seed, and add what was measured to their lines."""
    for folder in sorted(Path(options.runs).glob("fastnet-*-s0")):
        if (folder / "result.json").exists():
            measure(
                folder, batches=(BATCH,), engines=[*DENSE_ENGINES, OURS], threads=len(os.sched_getaffinity(0)), rounds=9
            )
            collect([Run(folder)], LINES)


def table(options: argparse.Namespace) -> None:
    """Write the tables into docs/results.md and the first one into README.md, and draw the picture."""
    found = by_name(read(LINES), str(LINES))
    write(DOCUMENT, tables(found))
    write(README, sparsities(found).rstrip())
    draw(found)


def write(file: Path, tables: str) -> None:
    """Write tables between the marks of a file."""
    write_text(between_marks(file.read_text(encoding="utf-8"), "frontier", tables), file)


Found = dict[str, list[Record]]


def sparsities(found: Found) -> str:
    """Return the table of the fast network."""
    columns = [f"{100 * s:g}" for s in sorted(SPARSITIES)]
    head = [
        f"fast network, a quarter of the width, 8 epochs (dense: {cell(found, 'fastnet-dense')})",
        *(f"{percent} %" for percent in columns),
    ]
    rows = [[title, *(cell(found, f"fastnet-{m}-{p}") for p in columns)] for m, title in METHODS.items()]
    rows.append([f"dense, as fast at batch {BATCH}", *(as_fast(found, f"fastnet-rvsm-{p}") for p in columns)])
    return known(head, rows)


def tables(found: Found) -> str:
    """Return the three tables, and the lead over magnitude pruning."""
    resnet = [
        [title, *(cell(found, f"resnet18-{m}-{s}-{t}") for s in ("layer", "global") for t in ("step", "cosine"))]
        for m, title in {**RESNET, **{f"trial-{name}": title for name, (title, _) in TRIALS.items()}}.items()
    ]
    resnet_head = [
        "ResNet-18, a quarter of the width, 12 epochs, 93.7 %",
        *("in each layer, steps", "in each layer, cosine", "global, steps", "global, cosine"),
    ]
    adamw = [[title, cell(found, f"fastnet-{m}-adamw")] for m, title in ADAMW.items()]
    parts = [
        sparsities(found),
        lead(found),
        known(resnet_head, resnet),
        known(["fast network with AdamW", "95 %"], adamw),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part)


def known(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table without the rows that have nothing yet; empty if there are none."""
    begun = [row for row in rows if any(value != MISSING for value in row[1:])]
    return pipe_table(head, begun) if begun else ""


def accuracies(found: Found, name: str) -> dict[int, float]:
    """Return the test accuracies of u in per cent, by seed."""
    runs = [run for run in found.get(name, []) if run.outcome is not None and run.seed is not None]
    return {run.seed: 100 * run.outcome.u.accuracy for run in runs}  # type: ignore[union-attr, misc]


def cell(found: Found, name: str) -> str:
    """Return the mean and the standard deviation over the seeds."""
    each = list(accuracies(found, name).values())
    if not each:
        return MISSING
    mean = f"{statistics.mean(each):.2f}"
    return f"{mean} ± {statistics.stdev(each):.2f}" if len(each) > 1 else f"{mean} (one seed)"


def lead(found: Found) -> str:
    """Say how far the default is ahead of magnitude pruning, seed by seed."""
    sentences = []
    for sparsity in sorted(SPARSITIES):
        ours, theirs = (accuracies(found, f"fastnet-{m}-{100 * sparsity:g}") for m in ("rvsm", "magnitude"))
        if leads := [ours[seed] - theirs[seed] for seed in ours if seed in theirs]:
            each = ", ".join(f"{value:+.2f}" for value in leads)
            sentences.append(f"{100 * sparsity:g} %: {statistics.mean(leads):+.2f} ({each})")
    return f"RVSM minus magnitude pruning, mean and seeds: {'; '.join(sentences)}." if sentences else ""


def milliseconds(found: Found, name: str) -> float | None:
    """Return the time of a call in the fastest engine: for a sparse network, that of the runtime."""
    for run in found.get(name, []):
        if run.outcome is not None and run.outcome.runtime is not None:
            engines = DENSE_ENGINES if is_dense(name) else (OURS,)
            return min(t.milliseconds for t in run.outcome.runtime.engines if t.engine in engines and t.batch == BATCH)
    return None


def is_dense(name: str) -> bool:
    """Return whether a network of the grid is dense."""
    return name.startswith(("fastnet-dense", "fastnet-narrow", "fastnet-width"))


def as_fast(found: Found, name: str) -> str:
    """Return the accuracy of a dense network that takes as long: between two widths, over the logarithm of the time."""
    wanted = milliseconds(found, name)
    widths = [(milliseconds(found, other), accuracies(found, other)) for other in found if is_dense(other)]
    points = sorted((math.log(time), statistics.mean(each.values())) for time, each in widths if time and each)
    if wanted is None or len(points) < 2 or not points[0][0] <= math.log(wanted) <= points[-1][0]:
        return MISSING
    times, means = zip(*points, strict=True)
    return f"{np.interp(math.log(wanted), times, means):.2f}"


def draw(found: Found) -> None:
    """Draw the accuracy of each method over the sparsity."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes: Any = figure.subplots()
    for method, title in METHODS.items():
        points = [(s, list(accuracies(found, f"fastnet-{method}-{100 * s:g}").values())) for s in sorted(SPARSITIES)]
        shown = [(1 / (1 - s), statistics.mean(a), deviation(a)) for s, a in points if a]
        if shown:
            x, y, error = zip(*shown, strict=True)
            style = "--" if method == "narrow" else "-"
            axes.errorbar(x, y, yerr=error, marker="o", capsize=3, label=title, linestyle=style)
    axes.set_xscale("log")
    axes.set_xticks([1 / (1 - s) for s in sorted(SPARSITIES)], [f"{100 * s:g} %" for s in sorted(SPARSITIES)])
    axes.minorticks_off()
    axes.set(xlabel="zeros", ylabel="test accuracy, %", title="Fast network, CIFAR-10 (JPEG), 8 epochs")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(PICTURE, dpi=110)


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation, or 0 for one value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train", help="train what is missing, and collect it")
    training.add_argument("--data", type=Path, required=True, help="an archive or a folder of CIFAR-10")
    training.add_argument("--runs", type=Path, default=Path("runs/frontier"), help="where the runs are")
    training.add_argument("--jobs", type=int, default=2, help="how many are trained at once, with one thread each")
    training.add_argument("--seeds", type=int, default=3, help="how many seeds")
    training.add_argument("--only", nargs="*", default=[""], help="parts of the names of those to train")
    training.set_defaults(command=train)
    timing = commands.add_parser("time", help="measure the networks of the first seed")
    timing.add_argument("--runs", type=Path, default=Path("runs/frontier"), help="where the runs are")
    timing.set_defaults(command=measured)
    commands.add_parser("table", help="write the tables and the picture").set_defaults(command=table)
    options = parser.parse_args()
    try:
        options.command(options)
    except StoppedError as stopped:
        raise SystemExit(str(stopped)) from None


if __name__ == "__main__":
    main()
