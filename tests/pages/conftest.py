"""What a headless Chromium sees of a page."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=5000
    --window-size=1400,1000 --dump-dom
"""

# The page says of itself what it looks like, with all that is folded opened.
_PROBE = """<script>addEventListener('load', () => {
  document.querySelectorAll('details').forEach(part => part.open = true);
  const images = [...document.images];
  Promise.all(images.map(i => i.decode().catch(() => 0))).then(() => parent.postMessage(JSON.stringify({
    width: innerWidth, needed: document.documentElement.scrollWidth,
    dark: getComputedStyle(document.body).backgroundColor === 'rgb(21, 27, 35)',
    visible: images.map(i => i.naturalWidth > 0 && i.getBoundingClientRect().height > 50),
    narrow: images.map(i => i.naturalWidth < 450) }), '*')) })</script></body>"""
_FRAME = """<!doctype html><title></title><link rel="icon" href="data:,">
<script>addEventListener('message', e => document.title = e.data)</script>
<iframe src="probe.html" style="border: 0; width: {width}px; height: 900px"></iframe>"""


@dataclass(frozen=True)
class Seen:
    """Width of the window and of what is in it, if it is dark, which pictures are visible and narrow, the console."""

    width: int
    needed: int
    dark: bool
    visible: list[bool]
    narrow: list[bool]
    console: str


@pytest.fixture
def look(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Seen]:
    """Open a page in a frame of a width, since Chromium's own windows are at least 500 pixels wide."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here; Debian's package chromium provides one")

    def open_page(page: Path, *, width: int, dark: bool = False) -> Seen:
        folder = tmp_path_factory.mktemp("browser")
        html = page.read_text(encoding="utf-8")
        assert "</body>" in html
        (folder / "probe.html").write_text(html.replace("</body>", _PROBE), encoding="utf-8")
        (folder / "frame.html").write_text(_FRAME.format(width=width), encoding="utf-8")
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        profile = f"--user-data-dir={folder / 'profile'}"
        done = subprocess.run(
            [str(CHROMIUM), *FLAGS.split(), scheme, profile, (folder / "frame.html").as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        title = re.search(r"<title>(\{.*?\})</title>", done.stdout)
        assert title, f"the page did not load: {done.stdout[:300]} {done.stderr[-1000:]}"
        console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
        return Seen(**json.loads(unescape(title[1])), console=console)

    return open_page
