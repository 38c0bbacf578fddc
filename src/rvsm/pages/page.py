"""A page that needs no network: text, tables and pictures in one file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape

from rvsm.pages.figure import Figure


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is coloured, or leads to a place in the page."""

    text: str
    tone: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Card:
    """A boxed item with a coloured badge: a statement and its verdict, a run and its state.

    Attributes:
        title: its heading.
        badge: a word or two.
        tone: how the badge is coloured: "good", "warn", "bad" or "plain".
        rows: pairs of a label and a text.

    """

    title: str
    badge: str
    tone: str
    rows: Sequence[tuple[str, str]]
    anchor: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page: paragraphs, then a table, then cards, then pictures, as far as there are any."""

    title: str
    paragraphs: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    cards: Sequence[Card] = ()
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = ""

    def html(self) -> str:
        """Return the page; everything that came from outside is escaped."""
        environment = Environment(loader=PackageLoader("rvsm.pages"), autoescape=select_autoescape(["html"]))
        return environment.get_template("page.html").render(page=self, anchor=anchor)


def anchor(text: str) -> str:
    """Return a text as the name of a place in a page.

    >>> anchor("Theorem 1 (iii): θ̄ < δ")
    'theorem-1-iii'
    """
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in escape(text, quote=False).replace("&lt;", " "))
    return "-".join(words.lower().split())


def write(page: Page, path: Path) -> None:
    """Write a page so that a reader never sees half of it."""
    write_text(page.html(), path)


def write_text(text: str, path: Path) -> None:
    """Write a file in one piece: a kill at any moment leaves the old one or the new one."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
