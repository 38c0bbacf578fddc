"""The commands about results: collect."""

import argparse
from pathlib import Path


def collect(words: list[str]) -> int:
    """Keep finished runs as lines of a text file."""
    parser = argparse.ArgumentParser(
        prog="rvsm collect",
        description="Keep finished runs as lines of a small text file, from which results are made.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    parser.add_argument(
        "--into", type=Path, required=True, metavar="FILE.jsonl",
        help="the file; a line of the same name, options and seed is replaced",
    )  # fmt: skip
    options = parser.parse_args(words)
    from rvsm.records import Run
    from rvsm.results import collect

    new, replaced = collect([Run(folder) for folder in options.runs], options.into)
    print(f"{options.into}: {new} new, {replaced} replaced")
    return 0
