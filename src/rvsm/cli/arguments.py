"""Arguments that several commands share."""

import argparse
from pathlib import Path
from typing import Any


def parser_of(command: str, description: str | None, **more: Any) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    return argparse.ArgumentParser(prog=f"rvsm {command}", description=description, **more)


def path(text: str) -> Path:
    """Return a path; an empty string, for example from an unset variable, does not mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path but got an empty string; write . for the current folder")
    return Path(text)


def add_allow_import(parser: argparse.ArgumentParser) -> None:
    """Add ``--allow-import module:callable``, which may be given several times."""
    parser.add_argument(
        "--allow-import",
        action="append",
        default=[],
        metavar="module:callable",
        help="a model that the folder or file may import; this runs its code, so name it only if you trust it",
    )
