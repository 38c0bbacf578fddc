"""Arguments that several commands have."""

import argparse
from pathlib import Path


def path(text: str) -> Path:
    """Return a path; an empty string, as a variable that is not set leaves it, is not taken for the folder here."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path but got an empty string; the current folder is written .")
    return Path(text)


def add_allow_import(parser: argparse.ArgumentParser) -> None:
    """Add ``--allow-import module:callable``, which may be given several times."""
    parser.add_argument(
        "--allow-import",
        action="append",
        default=[],
        metavar="module:callable",
        help="a model that the folder or file may import, which runs its code; name it only if you trust it",
    )
