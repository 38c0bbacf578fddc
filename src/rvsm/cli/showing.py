"""What the commands print: names in it may come from files that somebody else wrote."""

import logging
import sys

from rvsm.files import printable


def show(shown: object) -> None:
    """Print something, line by line, with escapes in place of what a terminal would obey."""
    print(lines(shown))


def complain(shown: object) -> None:
    """Print what is wrong, likewise, where errors go."""
    print(f"rvsm: {lines(shown)}", file=sys.stderr)


def lines(shown: object) -> str:
    r"""Return a string of several lines with escapes in place of all other characters that are not printable.

    >>> lines("a\x1b[2J\nb")
    'a\\x1b[2J\nb'
    """
    return "\n".join(map(printable, str(shown).split("\n")))


class LogFormatter(logging.Formatter):
    """Messages of the log as they are printed."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message alone."""
        return lines(record.getMessage())
