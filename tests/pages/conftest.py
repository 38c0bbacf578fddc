"""What a headless Chromium sees of a page."""

import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=5000
    --window-size=1400,1000 --dump-dom
"""

# The page says of itself what it looks like, with all that is folded opened, after a reader did something.
_PROBE = """addEventListener('load', () => {
  document.querySelectorAll('details').forEach(part => part.open = true);
  %s;
  const tip = document.querySelector('.tip');
  const seen = [...document.querySelectorAll('figure')].map(f => [...f.querySelectorAll('.plot > div')].filter(
    part => part.querySelector('svg') && part.getBoundingClientRect().height > 50));
  parent.postMessage([%d, {
    width: innerWidth, needed: document.documentElement.scrollWidth,
    dark: getComputedStyle(document.body).backgroundColor === 'rgb(21, 27, 35)',
    visible: seen.map(parts => parts.length === 1),
    narrow: seen.map(parts => parts.some(part => part.className === 'narrow')),
    tip: tip && !tip.hidden ? tip.innerText : '',
    off: [...document.querySelectorAll('.off')].map(part => part.tagName.toLowerCase() + part.dataset.run),
  }], '*') })"""
# One browser shows all views, each in a frame, because starting it takes longer than showing a page.
_FRAMES = """<!doctype html><title></title><link rel="icon" href="data:,">
<script>
const seen = {};
addEventListener('message', e => { seen[e.data[0]] = e.data[1]; document.title = JSON.stringify(seen); })
</script>
"""
_FRAME = '<iframe src="probe{i}.html" style="border: 0; position: absolute; width: {width}px; height: 900px"></iframe>'


@dataclass(frozen=True)
class View:
    """A page in a window of a width, since Chromium's own windows are at least 500 pixels wide, after some acts."""

    page: Path
    width: int
    act: str = ""


@dataclass(frozen=True)
class Seen:
    """What is to be seen of a page.

    Attributes:
        width: the width of the window.
        needed: the width of what is in it.
        dark: whether it is dark.
        visible: for each figure, whether just one of its pictures is to be seen.
        narrow: for each figure, whether that is the one for narrow screens.
        tip: the numbers that are shown of what is pointed at.
        off: the parts that are faded because their run is switched off, as tag and run.
        console: what the browser complained about.

    """

    width: int
    needed: int
    dark: bool
    visible: list[bool]
    narrow: list[bool]
    tip: str
    off: list[str]
    console: str


@pytest.fixture(scope="session")
def look(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Seen]]:
    """Return what opens views in a browser."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here; Debian's package chromium provides one")

    def open_views(*views: View, dark: bool = False) -> list[Seen]:
        folder = tmp_path_factory.mktemp("browser")
        frames = _FRAMES
        for i, view in enumerate(views):
            html = view.page.read_text(encoding="utf-8")
            assert "</body>" in html
            probe = _PROBE % (view.act, i)
            digest = b64encode(sha256(probe.encode()).digest()).decode()
            html = html.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)  # the rest of the policy holds
            html = html.replace("</body>", f"<script>{probe}</script></body>")
            (folder / f"probe{i}.html").write_text(html, encoding="utf-8")
            frames += _FRAME.format(i=i, width=view.width)
        (folder / "frames.html").write_text(frames, encoding="utf-8")
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        profile = f"--user-data-dir={folder / 'profile'}"
        done = subprocess.run(
            [str(CHROMIUM), *FLAGS.split(), scheme, profile, (folder / "frames.html").as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        title = re.search(r"<title>(\{.*?\})</title>", done.stdout)
        found = json.loads(unescape(title[1])) if title else {}
        assert len(found) == len(views), f"a page did not load: {done.stdout[:300]} {done.stderr[-1000:]}"
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        named = [[line for line in said if f"/probe{i}.html" in line] for i in range(len(views))]
        assert sum(map(len, named)) == len(said), said
        return [Seen(**found[str(i)], console="\n".join(lines)) for i, lines in enumerate(named)]

    return open_views
