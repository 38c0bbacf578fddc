"""A page that needs no network connection: text, tables and pictures in one file."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from rvsm.files import write_text
from rvsm.pages.figure import Figure
from rvsm.pages.keys import Key

__all__ = ["Card", "Cell", "Details", "Page", "Section", "anchor", "write", "write_text"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    tone: str = ""  # its colour: "good", "warn", "bad" or "plain"
    anchor: str = ""  # the place in the page that it links to
    numeric: bool = False  # whether it is a number, which is aligned to the right
    key: Key | None = None  # the legend entry for the row; only in the first cell of a row


@dataclass(frozen=True)
class Card:
    """A boxed item with a coloured badge: a statement and its verdict, a run and its state."""

    title: str
    badge: str  # one or two words
    tone: str  # the colour of the badge: "good", "warn", "bad" or "plain"
    rows: Sequence[tuple[str, str]]  # pairs of a label and a string
    anchor: str = ""


@dataclass(frozen=True)
class Details:
    """A part that is collapsed at first: facts, a table and preformatted text, each optional."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    text: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page: paragraphs, a table, cards, pictures, facts and details, each optional."""

    title: str
    paragraphs: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    cards: Sequence[Card] = ()
    figures: Sequence[Figure] = ()
    facts: Sequence[tuple[str, str]] = ()
    details: Sequence[Details] = ()


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = ""

    def html(self) -> str:
        """Return the page as HTML; everything from outside is escaped.

        A content security policy allows only the page's own script, and nothing from the network.
        """
        environment = Environment(loader=PackageLoader("rvsm.pages"), autoescape=select_autoescape(["html"]))
        style, script = (Markup(environment.get_template(name).render()) for name in ("page.css", "page.js"))
        digest = b64encode(sha256(script.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
        page = environment.get_template("page.html")
        return page.render(page=self, anchor=anchor, style=style, script=script, policy=policy)


def anchor(text: str) -> str:
    """Return the anchor for a title in a page.

    >>> anchor("Theorem 1 (iii): θ̄ < δ")
    'theorem-1-iii'
    """
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in escape(text, quote=False).replace("&lt;", " "))
    return "-".join(words.lower().split())


def write(page: Page, path: Path) -> None:
    """Write a page atomically."""
    write_text(page.html(), path)
