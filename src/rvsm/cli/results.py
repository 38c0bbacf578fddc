"""The commands about results: collect and results."""

import argparse
from pathlib import Path

from rvsm.cli.arguments import path
from rvsm.cli.showing import show


def collect(words: list[str]) -> int:
    """Keep finished runs as lines of a text file."""
    parser = argparse.ArgumentParser(
        prog="rvsm collect",
        description="Keep finished runs as lines of a small text file, from which results are made.",
    )
    parser.add_argument("runs", nargs="+", type=path, metavar="RUN", help="folders of finished runs")
    parser.add_argument(
        "--into", type=path, required=True, metavar="FILE.jsonl",
        help="the file; a line of the same name, options and seed is replaced",
    )  # fmt: skip
    options = parser.parse_args(words)
    from rvsm.records import Run
    from rvsm.results import collect

    new, replaced = collect([Run(folder) for folder in options.runs], options.into)
    show(f"{options.into}: {new} new, {replaced} replaced")
    return 0


def results(words: list[str]) -> int:
    """Make tables, verdicts and pictures from files of results."""
    parser = argparse.ArgumentParser(
        prog="rvsm results",
        description="Write tables.md, verdicts.json, verdicts.md and pictures from files that rvsm collect made.",
    )
    parser.add_argument("files", nargs="+", type=path, metavar="FILE.jsonl", help="files of results")
    parser.add_argument("--out", type=path, help="the folder to write to (default: that of the first file)")
    parser.add_argument(
        "--docs", type=path, nargs="+", default=[], metavar="FILE.md",
        help="rewrite the parts of documents between their comments",
    )  # fmt: skip
    parser.add_argument(
        "--experiments", type=path, default=Path("experiments"), metavar="DIR",
        help="where the files of the experiments are (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args(words)
    from rvsm.results.render import render

    out = options.out or options.files[0].parent
    for file in render(options.files, out, docs=options.docs, experiments=options.experiments):
        show(file)
    return 0
