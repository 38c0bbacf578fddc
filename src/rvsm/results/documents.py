"""Parts of a document that are made from results, between comments that name them.

``<!-- results: cpu/table-1 -->`` begins that table of the collection ``cpu``; ``<!-- end -->`` ends it.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from rvsm.files import write_text

PARTS = ("table-1", "table-2", "networks", "headline", "costs", "verdicts", "pictures")
"""What there may be of a collection."""
EMPTY = "*Not run yet.*\n"

_BEGIN = re.compile(r"<!-- results: (?P<collection>[\w.-]+)/(?P<part>[\w.-]+) -->")
_END = "<!-- end -->"


def marked(key: str, text: str) -> str:
    """Return a part with the comments around it.

    >>> print(marked("cpu/costs", "none"))
    <!-- results: cpu/costs -->
    <BLANKLINE>
    none
    <BLANKLINE>
    <!-- end -->
    <BLANKLINE>
    """
    return f"<!-- results: {key} -->\n\n{text.strip()}\n\n{_END}\n"


def refreshed(document: str, parts: Mapping[str, str]) -> str:
    """Return a document with the text between its comments replaced; the rest stays as it is, to the letter.

    Args:
        document: the text.
        parts: by collection and name, such as "cpu/table-1"; for those that are not there the document says so.

    Raises:
        ValueError: a comment is misspelt, names a part that there cannot be, or has no end.

    """
    lines: list[str] = []
    inside: str | None = None
    for line in document.split("\n"):
        begin = _BEGIN.fullmatch(line)
        if inside is not None:
            if begin is not None:
                raise ValueError(f"{inside} has no end: put {_END} on a line of its own before {line}")
            inside = None if line == _END else inside
        elif begin is not None:
            if begin["part"] not in PARTS:
                raise ValueError(f"{line} names no part; choose from {', '.join(PARTS)}")
            key = f"{begin['collection']}/{begin['part']}"
            lines.append(marked(key, parts.get(key, EMPTY)).rstrip("\n"))
            inside = line
        elif re.match(r"\s*<!--\s*results\b", line):
            raise ValueError(f"expected a line such as <!-- results: cpu/table-1 --> but found {line!r}")
        else:
            lines.append(line)
    if inside is not None:
        raise ValueError(f"{inside} has no end: put {_END} on a line of its own after it")
    return "\n".join(lines)


def refresh(file: Path, parts: Mapping[str, str]) -> None:
    """Rewrite the parts of a document that are made from results."""
    try:
        document = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None
    try:
        write_text(refreshed(document, parts), file)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
