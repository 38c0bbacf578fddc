"""Tables and numbers in Markdown."""

from collections.abc import Container, Sequence

from rvsm.report.numbers import Mean
from rvsm.results.experiments import Difference

NOTHING = "–"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], texts: Container[str] = ("experiment",)) -> str:
    """Return a table; the first column and those of the names in ``texts`` are texts, the others numbers.

    >>> print(markdown(("a", "b", "experiment"), [("x", "1", "y")]), end="")
    | a | b | experiment |
    | --- | ---: | --- |
    | x | 1 | y |
    """
    rule = ["---" if not i or name in texts else "---:" for i, name in enumerate(head)]
    return "".join("| " + " | ".join(line) + " |\n" for line in (head, rule, *rows))


def cell(text: object) -> str:
    """Return a text that neither ends a cell nor is read as HTML or Markdown."""
    shown = "".join(c if c.isprintable() else " " for c in str(text))
    for character in "\\|`*_[]":
        shown = shown.replace(character, "\\" + character)
    return shown.replace("&", "&amp;").replace("<", "&lt;")


def percent(mean: Mean | None) -> str:
    """Return a share in percent."""
    return NOTHING if mean is None else mean.text(100, 2)


def points(points: float) -> str:
    """Return points with their sign."""
    return f"{points:+.2f}".replace("-", "−")


def difference(difference: Difference) -> str:
    """Return a difference with its spread."""
    spread = "" if difference.spread is None else f" ± {difference.spread:.2f}"
    return f"{points(difference.points)}{spread}"


def kilobytes(mean: Mean | None) -> str:
    """Return bytes in thousands."""
    return NOTHING if mean is None else mean.text(1e-3, 0)


def times(mean: Mean | None) -> str:
    """Return a factor."""
    return NOTHING if mean is None else mean.text(digits=1)


def minutes(mean: Mean | None) -> str:
    """Return minutes, with a digit more where they are few."""
    return NOTHING if mean is None else mean.text(digits=0 if mean.mean >= 10 else 1)


def whole(mean: Mean | None) -> str:
    """Return a number without digits after the point."""
    return NOTHING if mean is None else mean.text(digits=0)
