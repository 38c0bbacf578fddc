"""Pages: everything is escaped, in one file, and a browser shows it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Canvas

from rvsm.pages import Card, Cell, Figure, Page, Section
from rvsm.pages.page import write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def figure(name: str = "line") -> Figure:
    def draw(canvas: Canvas) -> None:
        canvas.subplots().plot([0, 1], [1, 0])

    return Figure(name, "A falling <line>.", draw)


def page() -> Page:
    card = Card("A & B", "fails", "bad", [("claim", "1 < 2")], anchor="a-b")
    table = Section("First", ["<script>alert(1)</script>"], ("name",), [(Cell("x<y", tone="good", anchor="a-b"),)])
    return Page("Title <b>", "Lead.", [table, Section("Second", cards=[card], figures=[figure()])], footer="f & g")


def test_text_is_escaped_and_nothing_comes_from_outside() -> None:
    html = page().html()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "Title &lt;b&gt;" in html
    assert not re.search(r'(?:src|href|srcset)="(?!data:|#)', html)
    assert html.count("data:image/svg+xml;base64,") == 2, "each picture is there for light and for dark pages"


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


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; Debian's package chromium provides one")
@pytest.mark.parametrize("size", ["1200,900", "390,800"], ids=["desktop", "phone"])
def test_a_browser_shows_the_page_without_an_error(tmp_path: Path, size: str) -> None:
    write(page(), tmp_path / "page.html")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=3000"
    # The page says of itself how wide it is and whether its picture has loaded.
    probe = tmp_path / "probe.html"
    script = (
        "<script>addEventListener('load', () => { const i = document.querySelector('img');"
        " document.title = [i.naturalWidth > 0, document.documentElement.scrollWidth <= innerWidth] })</script>"
    )
    probe.write_text((tmp_path / "page.html").read_text().replace("</body>", script + "</body>"))
    done = subprocess.run(
        [
            str(CHROMIUM),
            *flags.split(),
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={size}",
            "--dump-dom",
            probe.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "<title>true,true</title>" in done.stdout
    assert "CONSOLE" not in done.stderr
