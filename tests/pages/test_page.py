"""Pages: everything is escaped, in one file, and a browser shows it."""

import json
import re
import runpy
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure as Canvas

from rvsm.pages import Card, Cell, Details, Figure, Key, Page, Section
from rvsm.pages.keys import drawn, gid
from rvsm.pages.page import write

View = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["View"]

HOSTILE = "</script><script>alert(1)</script><!--<script>"
KEYS = (Key("first <b>", "C6", "--", "o", run=0), Key(HOSTILE, "C1", run=1), Key("area", "C1", filled=True))


def figure(name: str = "line", phone: tuple[float, float] | None = None) -> Figure:
    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        axes.plot([0, 1, 2], [2, 0, 1.5], color="C6", label="数", gid=gid(0))
        axes.plot([0, 1, 2], [1, 3, 1], color="C1", label=HOSTILE, gid=gid(1))
        axes.plot([0, 2], [0, 0])
        axes.set(title=HOSTILE, xlabel="epoch")

    return Figure(name, "A falling <line>.", draw, phone=phone, keys=KEYS)


@cache
def page() -> Page:
    card = Card("A & B", "fails", "bad", [("claim", "1 < 2")], anchor="a-b")
    rows = [(Cell("x<y", tone="good", anchor="a-b"),), (Cell("first <b>", key=KEYS[0]),)]
    table = Section("First", ["<script>alert(1)</script>"], ("name",), rows)
    wide = [Cell("a" * 60), *(Cell(f"{i}", numeric=True) for i in range(40))]
    details = Details("More <i>", facts=[("k<", "v" * 300)], head=["h"] * 41, rows=[wide], text="<pre>" + "x" * 500)
    pictures = [figure(), figure("both", phone=(4.0, 3.0))]
    second = Section("Second", cards=[card], figures=pictures, facts=[("fact", "<u>")], details=[details])
    return Page("Title <b>" + "t" * 200, "Lead.", [table, second], footer="f & g")


@cache
def html_of_page() -> str:
    return page().html()


def scripts(html: str) -> list[str]:
    """Return the scripts that a browser runs: not the data."""
    return re.findall(r"<script>(.*?)</script>", html, re.DOTALL)


def test_text_is_escaped_and_nothing_comes_from_outside() -> None:
    html = html_of_page()
    assert "alert(1)" not in "".join(scripts(html))
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html
    assert "<!--" not in html
    assert "Title &lt;b&gt;" in html
    assert not re.search(r'(?:src|href|srcset)="(?!data:|#)', html)
    assert html.count('role="img"') == 3, "one for both widths, and one of the other for each"
    assert "More &lt;i&gt;" in html
    assert "&lt;pre&gt;xxx" in html
    assert "<dt>k&lt;</dt>" in html
    assert '<td class=" number">7</td>' in html


def test_the_policy_allows_the_one_script_of_the_page_and_no_network() -> None:
    html = html_of_page()
    (script,) = scripts(html)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert f"script-src &#39;sha256-{digest}&#39;" in policy[1]
    assert policy[1].startswith("default-src &#39;none&#39;")
    assert html.index("Content-Security-Policy") < html.index("<script")


def test_a_drawing_follows_the_page_and_knows_its_numbers() -> None:
    drawing = figure().drawings()["wide"]
    root = ElementTree.fromstring(str(drawing.svg))
    assert "#1f2328" not in drawing.svg, "the page says what ink is"
    assert "var(--ink)" in drawing.svg
    assert {part.get("data-run") for part in root.iter()} == {None, "0", "1"}
    (panel,) = drawing.readings
    assert [(one["name"], one["run"], one["colour"]) for one in panel["series"]] == [
        ("数", "0", "var(--ink)"),
        (HOSTILE, "1", "#d55e00"),
    ]
    assert (panel["series"][0]["x"], panel["series"][0]["y"]) == ([0, 1, 2], [2, 0, 1.5])
    assert (panel["title"], panel["across"]) == (HOSTILE, "epoch")
    left, top, right, bottom = panel["box"]
    assert 0 < left < right < 7 * 72
    assert 0 < top < bottom < 4.2 * 72
    json.dumps(drawing.readings, allow_nan=False)


def test_no_two_parts_of_a_page_have_the_same_name() -> None:
    html = html_of_page()
    names = re.findall(r'\bid="([^"]*)"', html)
    assert len(names) == len(set(names))
    links = [*re.findall(r"url\(#([^)]*)\)", html), *re.findall(r'href="#([^"]*)"', html)]
    assert set(links) <= set(names)


def test_links_lead_to_places_in_the_page() -> None:
    html = html_of_page()
    for target in re.findall(r'href="#([^"]+)"', html):
        assert f'id="{target}"' in html


def test_a_page_is_written_in_one_piece(tmp_path: Path) -> None:
    write(page(), tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_pictures_are_saved_for_a_paper(tmp_path: Path) -> None:
    files = figure().save(tmp_path)
    assert [file.read_bytes()[:4] for file in files] == [b"\x89PNG", b"%PDF"]


def test_a_file_has_the_legend_drawn_and_the_page_has_it_in_words(tmp_path: Path) -> None:
    (file,) = figure().save(tmp_path, formats=("png",))
    width, height = (int.from_bytes(file.read_bytes()[at : at + 4]) for at in (16, 20))
    assert width == 7 * 150
    assert height > 4.2 * 150, "room for the legend"
    assert "first" not in figure().drawings()["wide"].svg
    assert '<span class="key" data-run="0">' in html_of_page()
    assert "first &lt;b&gt;</span>" in html_of_page()


def test_a_legend_in_a_file_leaves_the_picture_as_it_is() -> None:
    canvas = Canvas(figsize=(6.0, 4.0))
    axes, words = canvas.subplots(), canvas.text(0.5, 0.75, "a remark")
    before = axes.get_position().frozen()
    with drawn(canvas, KEYS):
        height = canvas.get_figheight()
        assert height > 4
        assert len(canvas.legends) == 1
        box = axes.get_position()
        assert height * (1 - box.y1) == pytest.approx(4 * (1 - before.y1)), "as far from the top as before"
        assert height * box.height == pytest.approx(4 * before.height)
        assert height * (1 - words.get_position()[1]) == pytest.approx(4 * 0.25)
    assert canvas.get_figheight() == 4
    assert not canvas.legends
    assert axes.get_position().bounds == before.bounds
    assert words.get_position() == (0.5, 0.75)


POINT = """const plot = document.querySelector('#line svg'), box = plot.getBoundingClientRect();
    plot.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width * %s, clientY: box.top + 99}))"""
KEY = "document.querySelector('#line svg').dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}))"
CLICK = "document.querySelector('td .key').click()"
FAILING = "<body><script>fail()</script><figure></figure><p style='width: 2000px'>wide</p></body>"
ACTS = {
    "desktop": "",
    "middle": POINT % 0.5,
    "end": POINT % 0.97,
    "keyboard": ";".join(KEY % key for key in ("ArrowLeft", "ArrowLeft")),
    "escape": f"{POINT % 0.5}; {KEY % 'Escape'}",
    "off": f"{CLICK}; {POINT % 0.5}",
    "off and on": f"{CLICK}; {CLICK}",
}


@pytest.fixture(scope="module")
def seen(once: Callable[[str, Callable[[Path], object]], Path], look: Callable[..., Any]) -> dict[str, SimpleNamespace]:
    """Return what a browser shows after each of the acts, on a phone, and of a page that fails."""

    def fill(folder: Path) -> None:
        write(page(), folder / "page.html")
        (folder / "failing.html").write_text(FAILING)
        views = {name: View(folder / "page.html", 1200, act) for name, act in ACTS.items()}
        views["failing"] = View(folder / "failing.html", 360)
        found = dict(zip(views, look(*views.values()), strict=True))
        (found["phone"],) = look(View(folder / "page.html", 360), dark=True)
        (folder / "seen.json").write_text(json.dumps({name: asdict(one) for name, one in found.items()}))

    kept = json.loads((once("pages-seen", fill) / "seen.json").read_text())
    return {name: SimpleNamespace(**one) for name, one in kept.items()}


@pytest.mark.parametrize("where", ["desktop", "phone"])
def test_a_browser_shows_the_page_without_an_error(where: str, seen: dict[str, SimpleNamespace]) -> None:
    found, phone = seen[where], where == "phone"
    assert found.console == ""
    assert found.dark == phone
    assert found.needed <= found.width == (360 if phone else 1200)
    assert found.visible == [True, True]
    assert found.narrow == [False, phone], "only one of the pictures has a version for phones"


@pytest.mark.parametrize(
    ("act", "tip"),
    [
        ("middle", ["epoch 1", "3", "0"]),
        ("end", ["epoch 2", "1.5", "1"]),
        ("keyboard", ["epoch 1", "3", "0"]),
        ("escape", []),
    ],
)
def test_pointing_at_a_plot_shows_its_numbers(act: str, tip: list[str], seen: dict[str, SimpleNamespace]) -> None:
    assert seen[act].console == ""
    lines = seen[act].tip.splitlines()
    assert [line.rpartition(", ")[2] for line in lines if line not in ("数", HOSTILE)] == tip
    assert (HOSTILE in lines) == bool(tip), "as it is, and not as HTML"


def test_a_run_is_switched_off_everywhere(seen: dict[str, SimpleNamespace]) -> None:
    off = seen["off"]
    assert off.console == ""
    assert set(off.off) == {"tr0", "span0", "g0"}
    assert off.off.count("g0") == 3, "in every picture"
    assert "数" not in off.tip
    assert seen["off and on"].off == []


def test_a_browser_that_sees_an_error_says_so(seen: dict[str, SimpleNamespace]) -> None:
    failing = seen["failing"]
    assert "fail is not defined" in failing.console
    assert failing.needed > failing.width
    assert failing.visible == [False]
