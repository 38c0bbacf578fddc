"""The commands of this package, which ``rvsm`` finds by their entry points.

They import what they need when they are called, because the command line imports this module during its own import.
"""

import argparse
from pathlib import Path


def results(words: list[str]) -> int:
    """Make tables, verdicts and pictures from collected results: rvsm results FILE.jsonl…."""
    from rvsm.cli.terminal import path, show

    parser = argparse.ArgumentParser(
        prog="rvsm results",
        description="Write tables.md, verdicts.json, verdicts.md and pictures from files that rvsm collect made.",
    )
    parser.add_argument("files", nargs="+", type=path, metavar="FILE.jsonl", help="results files")
    parser.add_argument("--out", type=path, help="output folder (default: the folder of the first file)")
    parser.add_argument(
        "--docs", type=path, nargs="+", default=[], metavar="FILE.md",
        help="documents whose generated parts are rewritten",
    )  # fmt: skip
    parser.add_argument(
        "--experiments", type=path, default=Path("experiments"), metavar="DIR",
        help="folder of the experiment files (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args(words)
    from rvsm.paper.results.render import render

    out = options.out or options.files[0].parent
    for file in render(options.files, out, docs=options.docs, experiments=options.experiments):
        show(file)
    return 0


def theory(words: list[str]) -> int:
    """Judge every statement of the paper, with pictures and a page: rvsm theory."""
    from rvsm.cli.terminal import path

    parser = argparse.ArgumentParser(
        prog="rvsm theory",
        description="Judge every statement of the paper by numerical runs. Writes verdicts.json, pictures and"
        " theory.html. Exits with 1 if a verdict differs from the recorded one.",
    )
    parser.add_argument("statements", nargs="*", metavar="STATEMENT", help="the statements to judge (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="run a smaller sweep in a quarter of the time; write no picture files"
    )
    parser.add_argument("--out", type=path, default=Path("theory"), help="output folder (default: %(default)s)")
    options = parser.parse_args(words)
    from rich.console import Console

    from rvsm.paper.theory.laboratory import laboratory

    expected = laboratory(options.statements, quick=options.quick, out=options.out, console=Console())
    return 0 if expected else 1
