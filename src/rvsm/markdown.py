"""Tables in Markdown."""

from collections.abc import Container, Sequence


def pipe_table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: Container[str] = ()) -> str:
    """Return a table; the first column and those named in ``texts`` are strings, the others numbers.

    >>> print(pipe_table(("a", "b", "experiment"), [("x", "1", "y")], texts=("experiment",)), end="")
    | a | b | experiment |
    | --- | ---: | --- |
    | x | 1 | y |
    """
    rule = ["---" if not i or name in texts else "---:" for i, name in enumerate(head)]
    return "".join("| " + " | ".join(line) + " |\n" for line in (head, rule, *rows))


def cell(text: object) -> str:
    """Return a string that neither ends a cell nor is interpreted as HTML or Markdown."""
    shown = "".join(c if c.isprintable() else " " for c in str(text))
    for character in "\\|`*_[]":
        shown = shown.replace(character, "\\" + character)
    return shown.replace("&", "&amp;").replace("<", "&lt;")
