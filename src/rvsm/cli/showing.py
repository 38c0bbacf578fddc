"""Print the output of commands, which may contain names from untrusted files."""

import logging
import sys

from rvsm.files import printable


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
