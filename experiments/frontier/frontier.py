"""Accuracy at equal sparsity: train what is missing of the grid, collect it, and write its table and picture.

    python experiments/frontier/frontier.py train --data cifar10.tar.xz --jobs 2     # stop and start it at any time
    python experiments/frontier/frontier.py table                                     # from frontier.jsonl here

A file of this folder is a method; the grid of sparsities, scopes, schedules and seeds is here. Seeds come in turn, so
that an unfinished grid has all methods with the first seed before the second begins.
"""

import argparse
import json
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from rvsm.collect import collect, read
from rvsm.config import read_config
from rvsm.models import fastnet
from rvsm.records import Run, folder_of
from rvsm.train import run_all
from rvsm.train.recorder import StoppedError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LINES = HERE / "frontier.jsonl"  # not in results/, whose lines have a file each; here the grid has them
DOCUMENT = ROOT / "docs" / "results.md"
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
    for scope in ("layer", "global"):
        for schedule in ("step", "cosine"):
            for method in RESNET:
                change = ["--budget.scope", scope, "--schedule.name", schedule]
                yield HERE / f"resnet18-{method}.toml", ["--name", f"resnet18-{method}-{scope}-{schedule}", *change]


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
        # The longer ones have two seeds.
        wanted = [c for c in configs if seed < 2 or not c.name.startswith("resnet18")]
        missing = [c for c in wanted if (c.name, c.fingerprint(), seed) not in known]
        try:
            run_all(missing, seeds=[seed], runs=options.runs, console=Console(), jobs=options.jobs)
        finally:
            folders = [folder_of(options.runs, c.name, seed) for c in missing]
            finished = [Run(folder) for folder in folders if (folder / "result.json").exists()]
            if finished:
                collect(finished, LINES)


def table(options: argparse.Namespace) -> None:
    """Write the table into docs/results.md, and the picture."""
    found: dict[str, list[float]] = defaultdict(list)
    for line in LINES.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        found[run["name"]].append(100 * run["test"]["u"]["accuracy"])
    text = DOCUMENT.read_text(encoding="utf-8")
    begin, end = "<!-- frontier -->", "<!-- end of frontier -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    DOCUMENT.write_text(f"{before}{begin}\n{_tables(found)}\n{end}{after}", encoding="utf-8")
    _draw(found)


def _tables(found: Mapping[str, list[float]]) -> str:
    dense = _cell(found.get("fastnet-dense"))
    lines = [
        f"| fast network, a quarter of the width, 8 epochs (dense: {dense}) | 90 % | 95 % | 98 % | 99 % |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for method, title in METHODS.items():
        cells = [_cell(found.get(f"fastnet-{method}-{100 * s:g}")) for s in sorted(SPARSITIES)]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += [
        "",
        "| ResNet-18, a quarter of the width, 12 epochs, 93.7 %"
        " | in each layer, steps | in each layer, cosine | global, steps | global, cosine |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for method, title in RESNET.items():
        ends = ("layer-step", "layer-cosine", "global-step", "global-cosine")
        lines.append(f"| {title} | {' | '.join(_cell(found.get(f'resnet18-{method}-{end}')) for end in ends)} |")
    return "\n".join(["", *lines, ""])


def _cell(accuracies: list[float] | None) -> str:
    if not accuracies:
        return "not run yet"
    mean = f"{statistics.mean(accuracies):.2f}"
    return f"{mean} ± {statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else f"{mean} (one seed)"


def _draw(found: Mapping[str, list[float]]) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes: Any = figure.subplots()
    for method, title in METHODS.items():
        points = [(s, found[f"fastnet-{method}-{100 * s:g}"]) for s in sorted(SPARSITIES)]
        shown = [(1 / (1 - s), statistics.mean(a), statistics.stdev(a) if len(a) > 1 else 0.0) for s, a in points if a]
        if shown:
            x, y, error = zip(*shown, strict=True)
            axes.errorbar(
                x, y, yerr=error, marker="o", capsize=3, label=title, linestyle="--" * (method == "narrow") or "-"
            )
    axes.set_xscale("log")
    axes.set_xticks([1 / (1 - s) for s in sorted(SPARSITIES)], [f"{100 * s:g} %" for s in sorted(SPARSITIES)])
    axes.minorticks_off()
    axes.set(xlabel="zeros", ylabel="test accuracy, %", title="Fast network, CIFAR-10 (JPEG), 8 epochs")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(PICTURE, dpi=110)


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
    commands.add_parser("table", help="write docs/results.md and the picture").set_defaults(command=table)
    options = parser.parse_args()
    try:
        options.command(options)
    except StoppedError as stopped:
        raise SystemExit(str(stopped)) from None


if __name__ == "__main__":
    main()
