"""What commands share: arguments, and output, which may contain names from untrusted files."""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from rvsm.files import printable


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


def show(shown: object) -> None:
    """Print something, line by line, with control characters shown as escapes."""
    print(lines(shown))


def complain(shown: object) -> None:
    """Print an error in the same way, to stderr."""
    print(f"rvsm: {lines(shown)}", file=sys.stderr)


def lines(shown: object) -> str:
    r"""Return a string of several lines in which all other characters that are not printable are escaped.

    >>> lines("a\x1b[2J\nb")
    'a\\x1b[2J\nb'
    """
    return "\n".join(map(printable, str(shown).split("\n")))


class LogFormatter(logging.Formatter):
    """Formats log messages for printing."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message alone."""
        return lines(record.getMessage())
