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


def between_marks(document: str, name: str, text: str) -> str:
    r"""Return a document with another text between its two comments of a name.

    >>> print(between_marks("a\n<!-- x -->\nold\n<!-- end of x -->\nb", "x", "new"))
    a
    <!-- x -->
    <BLANKLINE>
    new
    <BLANKLINE>
    <!-- end of x -->
    b
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if document.count(begin) != 1 or document.count(end) != 1:
        raise ValueError(f"the document must have one comment {begin} and one comment {end}")
    before, rest = document.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}"


def cell(text: object) -> str:
    """Return a string that neither ends a cell nor is interpreted as HTML or Markdown."""
    shown = "".join(c if c.isprintable() else " " for c in str(text))
    for character in "\\|`*_[]":
        shown = shown.replace(character, "\\" + character)
    return shown.replace("&", "&amp;").replace("<", "&lt;")
