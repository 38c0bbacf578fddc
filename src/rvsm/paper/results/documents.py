"""Parts of a document that are generated from results, between comments that name them.

``<!-- results: cpu/table-1 -->`` begins Table 1 of the collection ``cpu``; ``<!-- end -->`` ends it.
"""

import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from rvsm.files import replacing

PARTS = ("table-1", "table-2", "networks", "headline", "costs", "verdicts", "pictures")
"""The parts that a collection may have."""
EMPTY = "*Not run yet.*\n"

_BEGIN = re.compile(r"<!-- results: (?P<collection>[\w.-]+)/(?P<part>[\w.-]+) -->")
_END = "<!-- end -->"
_EXPECTED = "expected a line such as <!-- results: cpu/table-1 -->"


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


def named_in(document: str) -> set[str]:
    """Return the collections that a document has parts of."""
    return {begin["collection"] for line in document.splitlines() if (begin := _BEGIN.fullmatch(line))}


def refreshed(document: str, parts: Mapping[str, str]) -> str:
    """Return a document with the text between its comments replaced; the rest stays exactly as it is.

    Args:
        document: the text.
        parts: texts by collection and name, such as "cpu/table-1". If a collection is given without a part that the
            document has, the document says so. If the whole collection is missing, the old text stays, if any.

    Raises:
        ValueError: there is no comment, or a comment is misspelt, names an unknown part, or has no end.

    """
    if "<!-- results" not in document:
        raise ValueError(f"there is nothing to rewrite: {_EXPECTED}, and {_END} after it")
    given = {key.partition("/")[0] for key in parts}
    lines: list[str] = []
    old: list[str] = []
    begun: re.Match[str] | None = None
    for whole in document.split("\n"):
        line = whole.removesuffix("\r")
        begin = _BEGIN.fullmatch(line)
        if begin is not None:
            if begun is not None:
                raise ValueError(f"{begun[0]} has no end: put {_END} on a line of its own before {line}")
            if begin["part"] not in PARTS:
                raise ValueError(f"{line} names an unknown part; choose from {', '.join(PARTS)}")
            begun, old = begin, [whole]
        elif begun is not None:
            old.append(whole)
            if line == _END:
                lines += _renewed(begun, old, parts, given)
                begun = None
        elif re.match(r"\s*<!--\s*results\b", line):
            raise ValueError(f"{_EXPECTED}, but found {line!r}")
        else:
            lines.append(whole)
    if begun is not None:
        raise ValueError(f"{begun[0]} has no end: put {_END} on a line of its own after it")
    return "\n".join(lines)


def _renewed(begun: re.Match[str], old: list[str], parts: Mapping[str, str], given: Container[str]) -> list[str]:
    """Return the lines of a part with the line ending of its first line; the old lines if its collection is missing."""
    collection, key = begun["collection"], f"{begun['collection']}/{begun['part']}"
    if collection not in given and any(line.strip() for line in old[1:-1]):
        return old
    missing = EMPTY if collection in given else f"*There is no file {collection}.jsonl yet.*\n"
    text = marked(key, parts.get(key, missing)).rstrip("\n")
    end = "\r" if old[0].endswith("\r") else ""
    return [*(f"{line}{end}" for line in text.split("\n")[:-1]), old[-1]]


def refreshed_file(file: Path, parts: Mapping[str, str]) -> str:
    """Return the text of a document with its generated parts renewed and its own line endings."""
    try:
        return refreshed(file.read_bytes().decode("utf-8"), parts)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} cannot be read as UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def refresh(files: Sequence[Path], parts: Mapping[str, str]) -> None:
    """Rewrite the generated parts of all documents, or of none if one is refused."""
    texts = {file: refreshed_file(file, parts) for file in files}
    for file, text in texts.items():
        with replacing(file) as temporary:
            temporary.write_bytes(text.encode("utf-8"))
