"""Pages: everything is escaped, in one file, and a browser shows it."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure as Canvas

from rvsm.pages import Card, Cell, Details, Figure, Page, Section
from rvsm.pages.page import write


def figure(name: str = "line", phone: tuple[float, float] | None = None) -> Figure:
    def draw(canvas: Canvas) -> None:
        canvas.subplots().plot([0, 1], [1, 0], color="C6", label="数")

    return Figure(name, "A falling <line>.", draw, phone=phone)


def page() -> Page:
    card = Card("A & B", "fails", "bad", [("claim", "1 < 2")], anchor="a-b")
    table = Section("First", ["<script>alert(1)</script>"], ("name",), [(Cell("x<y", tone="good", anchor="a-b"),)])
    wide = [Cell("a" * 60), *(Cell(f"{i}", numeric=True) for i in range(40))]
    details = Details("More <i>", facts=[("k<", "v" * 300)], head=["h"] * 41, rows=[wide], text="<pre>" + "x" * 500)
    pictures = [figure(), figure("both", phone=(4.0, 3.0))]
    second = Section("Second", cards=[card], figures=pictures, facts=[("fact", "<u>")], details=[details])
    return Page("Title <b>" + "t" * 200, "Lead.", [table, second], footer="f & g")


def test_text_is_escaped_and_nothing_comes_from_outside() -> None:
    html = page().html()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "Title &lt;b&gt;" in html
    assert not re.search(r'(?:src|href|srcset)="(?!data:|#)', html)
    assert html.count("data:image/svg+xml;base64,") == 6, "light and dark, and one also for phones"
    assert "More &lt;i&gt;" in html
    assert "&lt;pre&gt;xxx" in html
    assert "<dt>k&lt;</dt>" in html
    assert '<td class=" number">7</td>' in html


def test_a_dark_picture_differs_in_ink_only() -> None:
    light, dark = (base64.b64decode(source.partition(",")[2]).decode() for source in figure().sources())
    assert "#1f2328" in light
    assert "#1f2328" not in dark
    assert light.replace("#1f2328", "#d1d7e0").replace("#d0d7de", "#3d444d") == dark
    assert "<!--" not in light


def test_links_lead_to_places_in_the_page() -> None:
    html = page().html()
    for target in re.findall(r'href="#([^"]+)"', html):
        assert f'id="{target}"' in html


def test_a_page_is_written_in_one_piece(tmp_path: Path) -> None:
    write(page(), tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_pictures_are_saved_for_a_paper(tmp_path: Path) -> None:
    files = figure().save(tmp_path)
    assert [file.read_bytes()[:4] for file in files] == [b"\x89PNG", b"%PDF"]


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (360, True)], ids=["desktop", "phone"])
def test_a_browser_shows_the_page_without_an_error(
    tmp_path: Path, width: int, *, dark: bool, look: Callable[..., Any]
) -> None:
    write(page(), tmp_path / "page.html")
    seen = look(tmp_path / "page.html", width=width, dark=dark)
    assert seen.console == ""
    assert seen.dark == dark
    assert seen.needed <= seen.width == width
    assert seen.visible == [True, True]
    assert seen.narrow == [False, width == 360], "only one of the pictures has a version for phones"


def test_a_browser_that_sees_an_error_says_so(tmp_path: Path, look: Callable[..., Any]) -> None:
    (tmp_path / "page.html").write_text(
        "<body><script>fail()</script><img src='nothing.png'><p style='width: 2000px'>wide</p></body>"
    )
    seen = look(tmp_path / "page.html", width=360)
    assert "fail is not defined" in seen.console
    assert seen.needed > seen.width
    assert seen.visible == [False]
