"""The page for each kind of run: whole, self-contained, and what a browser makes of it."""

import json
import re
import runpy
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from markupsafe import escape
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from rvsm.pages import Page
from rvsm.pages.page import write
from rvsm.records import Run
from rvsm.report import report
from rvsm.report.configurations import configurations
from rvsm.report.page import page
from rvsm.report.pictures import PICTURES, channels, panels
from rvsm.report.table import as_json

timed = runpy.run_path(str(Path(__file__).with_name("made.py")))["timed"]
View = runpy.run_path(str(Path(__file__).parents[1] / "pages" / "conftest.py"))["View"]

ALL = ["dense", "l0", "l0-80", "l0-80-s1", "admm"]


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="module")
def comparison(trained: dict[str, Path], once: Once) -> Path:
    runs = [Run(trained[name]) for name in ALL]
    return once("comparison", lambda folder: report(runs, folder)) / "report.html"


@pytest.fixture(scope="module")
def dense(trained: dict[str, Path], once: Once) -> Path:
    """Return the report of a run in a folder that has pictures of an earlier report."""

    def fill(folder: Path) -> None:
        (folder / "pictures").mkdir()
        for name in ("lagrangian.png", "lagrangian.pdf", "mine.png"):
            (folder / "pictures" / name).touch()
        report([Run(trained["dense"])], folder)

    return once("report-of-dense", fill) / "report.html"


@pytest.fixture(scope="module")
def l0(trained: dict[str, Path], once: Once) -> Path:
    """Return the page of a run."""
    return once("page-of-l0", lambda at: write(page_of([Run(trained["l0"])]), at / "report.html")) / "report.html"


LONG = "n" * 400 + "<b>"


@pytest.fixture(scope="module")
def long(trained: dict[str, Path], once: Once) -> Path:
    """Return the page of a run with a long name, a target, and no validation images."""

    def fill(folder: Path) -> None:
        run = Run(shutil.copytree(trained["unvalidated"], folder / "run"))
        rename(run, LONG)
        write(page_of([run]), folder / "report.html")

    return once("page-of-long-name", fill) / "report.html"


@pytest.fixture(scope="module")
def seen(comparison: Path, long: Path, once: Once, look: Callable[..., Any]) -> dict[str, SimpleNamespace]:
    """Return what a browser shows of the comparison, and on a phone of a run with a long name."""

    def fill(folder: Path) -> None:
        views = {"desktop": View(comparison, 1280), "phone": View(comparison, 360), "long name": View(long, 360)}
        found = dict(zip(views, look(*views.values()), strict=True))
        (folder / "seen.json").write_text(json.dumps({name: asdict(one) for name, one in found.items()}))

    kept = json.loads((once("report-seen", fill) / "seen.json").read_text())
    return {name: SimpleNamespace(**one) for name, one in kept.items()}


def page_of(runs: list[Run]) -> Page:
    """Return the page alone: the files of its pictures take longer than all the rest."""
    return page(*configurations(runs))


def shown(runs: list[Run]) -> str:
    return page_of(runs).html()


def pictures(html: str) -> list[str]:
    return re.findall(r'<figure id="([^"]+)"', html)


def is_self_contained(html: str) -> bool:
    loads = re.findall(r'(?:src|href|srcset)="(?!data:|#)([^"]*)', html)
    links = re.findall(r"url\((?!#)", html)
    scripts = len(re.findall(r"<script(?! type=\"application/json\">)", html.lower()))
    return not loads and not links and scripts == 1 and "@import" not in html and "default-src &#39;none&#39;" in html


def test_a_comparison_has_all_its_pictures(comparison: Path) -> None:
    html = comparison.read_text(encoding="utf-8")
    named = list(PICTURES)
    assert pictures(html) == named
    files = {file.name for file in (comparison.parent / "pictures").iterdir()}
    assert files == {f"{name}.{ending}" for name in named for ending in ("png", "pdf")}
    assert {file.name for file in comparison.parent.iterdir()} == {"report.html", "table.md", "table.json", "pictures"}
    assert is_self_contained(html)
    assert len(html) < 600_000
    assert "convnet on digits, trained in 4 ways" in html
    for shown in ("penalty.lam", "Options in which the configurations differ", "torch 2", "0, 1"):
        assert shown in html


def test_the_lead_follows_from_the_numbers(comparison: Path) -> None:
    lead = re.search(r'<p class="lead">(.*?)</p>', comparison.read_text(encoding="utf-8"), re.DOTALL)
    assert lead
    rows = {row["name"]: row for row in json.loads((comparison.parent / "table.json").read_text())}
    sparsest = max(rows.values(), key=lambda row: row["sparsity"]["mean"])
    text = lead[1].replace("\u00a0", " ")
    assert sparsest["name"] == "l0-80"
    assert f"With {100 * sparsest['sparsity']['mean']:.2f} % zeros" in text
    assert f"of l0-80 is {100 * sparsest['accuracy_u']['mean']:.2f} ± " in text
    assert f"dense, which is dense, has {100 * rows['dense']['accuracy_u']['mean']:.2f} %" in text


@pytest.mark.parametrize(
    ("kind", "has", "lacks"),
    [
        ("dense", {"accuracy-by-epoch", "density-by-layer", "weights-histogram"}, {"sparsity-and-gap", "lagrangian"}),
        ("l0", {"accuracy-by-epoch", "sparsity-and-gap", "lagrangian"}, {"accuracy-sparsity"}),
        ("l0-80", {"sparsity-and-gap", "weights-histogram", "channel-norms"}, {"accuracy-sparsity"}),
        ("admm", {"sparsity-and-gap", "channel-norms"}, {"lagrangian"}),
        ("unvalidated", {"accuracy-by-epoch", "sparsity-and-gap"}, {"accuracy-sparsity"}),
    ],
)
def test_one_run(trained: dict[str, Path], kind: str, has: set[str], lacks: set[str]) -> None:
    told = page_of([Run(trained[kind])])
    figures = {figure.name: figure.caption for section in told.sections for figure in section.figures}
    assert has <= set(figures)
    assert not lacks & set(figures)
    assert told.title == kind
    captions = " ".join(figures.values())
    assert ("Accuracy on the training images" in captions) == (kind == "unvalidated")
    assert ("The shading shows the phases" in captions) == (kind in ("l0-80", "unvalidated"))


def test_the_page_of_one_run(trained: dict[str, Path], dense: Path, l0: Path, long: Path) -> None:
    """Drawn without a penalty, with one, and with a target and no validation images."""
    drawn = {"dense": (trained["dense"], dense), "l0": (trained["l0"], l0), LONG: (long.parent / "run", long)}
    for name, (run, file) in drawn.items():
        html, told = file.read_text(encoding="utf-8"), page_of([Run(run)])
        figures = [figure for section in told.sections for figure in section.figures]
        assert pictures(html) == [figure.name for figure in figures]
        assert all(str(escape(figure.caption)) in html for figure in figures)
        assert is_self_contained(html)
        assert f"<h1>{escape(name)}</h1>" in html


def test_an_unfinished_run_shows_what_there_is(copy: Callable[..., Run], tmp_path: Path) -> None:
    run = copy("l0-80")
    (run.folder / "result.json").unlink()
    lines = (run.folder / "metrics.jsonl").read_text().splitlines()
    (run.folder / "metrics.jsonl").write_text("\n".join(lines[:2]) + "\n" + lines[2][:50])
    html = shown([run])
    assert "The run is not finished: 2 of 4 epochs are done; so far w classifies" in html
    assert "Note: copy: 1 line of metrics.jsonl is left out: cannot be read." in html
    assert {"accuracy-by-epoch", "loss-and-learning-rate", "sparsity-and-gap", "weights-histogram"} == set(
        pictures(html)
    )
    (run.folder / "metrics.jsonl").unlink()
    (tmp_path / "out" / "pictures").mkdir(parents=True)
    for name in pictures(html):
        (tmp_path / "out" / "pictures" / f"{name}.png").touch()
    html = report([run], tmp_path / "out").read_text(encoding="utf-8")
    assert "has no record yet" in html
    assert not pictures(html)
    assert not list((tmp_path / "out" / "pictures").iterdir()), "those of the earlier report no longer apply"


def test_pictures_of_an_earlier_report_are_removed(dense: Path) -> None:
    left = {file.name for file in (dense.parent / "pictures").iterdir()}
    drawn = {f"{name}.{ending}" for name in pictures(dense.read_text(encoding="utf-8")) for ending in ("png", "pdf")}
    assert left == drawn | {"mine.png"}, "what others put there stays"
    assert "lagrangian.png" not in left


def test_damaged_files_are_complained_about(copy: Callable[..., Run], tmp_path: Path) -> None:
    good, bad = copy("l0", "good"), copy("l0-80", "bad")
    (bad.folder / "result.json").write_text('{"test": ')
    (bad.folder / "about.json").write_text("[]")
    (bad.folder / "config.toml").write_text("name = ")
    odd = [
        "not json",
        '{"epoch": "one"}',
        '{"epoch": 1, "w": 3, "u": {"accuracy": "high"}, "gap": NaN, "sparsity": 7, "lam": [1, null], "phase": 4}',
        '{"epoch": 2, "w": {"accuracy": 0.5}, "gap": 1e300, "threshold": [], "histogram": {"zeros": -1}}',
        '{"epoch": 1e99}',
        "[1]",
    ]
    (bad.folder / "metrics.jsonl").write_text("\n".join(odd) + "\n")
    html = shown([good, bad])
    for file in ("config.toml", "about.json", "result.json"):
        assert f"Note: bad: {file} is damaged" in html
    assert "2 lines of metrics.jsonl are left out: without an epoch" in html
    assert "2 lines of metrics.jsonl are left out: cannot be read" in html, "a word, and a list"
    assert "1 run is not finished" in html
    assert str(tmp_path) not in html, "no paths of this machine"


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"test": [], "layers": 3, "histogram": {"w": {"zeros": 1, "counts": []}}, "channel_norms": {"w": {"a": ["x"]}}},
        {"layers": {"\ud800\n": {"density": 0.5}}, "channel_norms": {"w": {"a": [0.0]}, "u": {"a": [0.0]}}},
        {"histogram": {"w": {"zeros": 5, "counts": [0] * 80}, "u": {"zeros": 5, "counts": [0] * 80}}},
        {"histogram": {"w": {"zeros": 0, "counts": [1, 2], "range": [1, -1]}}, "sparsity": 1.0, "nonzeros": -4},
        {"histogram": {"w": {"zeros": 0, "counts": [1, 2], "range": [1]}}},
        {"layers": {f"layer.{i}": {"density": i / 200} for i in range(200)}},
    ],
    ids=["empty", "types", "surrogates", "no-weights", "range", "half-a-range", "many-layers"],
)
def test_odd_results(copy: Callable[..., Run], result: dict[str, Any]) -> None:
    run = copy("l0")
    (run.folder / "result.json").write_text(json.dumps(result))
    whole = page_of([run])
    assert "The course of training" in {section.title for section in whole.sections}
    # Its pictures show the metrics, not the result.
    rest = [section for section in whole.sections if section.title != "The course of training"]
    assert "What was run" in replace(whole, sections=rest).html()


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([16, 16], "other engine, for batches of 16 with 1 thread."),
        ([64, 1], "other engine, for batches of 1 with 1 thread and batches of 64 with 1 thread."),
        ([None], "fastest other engine."),
    ],
)
def test_the_legend_says_what_was_timed(copy: Callable[..., Run], batches: list[int | None], said: str) -> None:
    runs = [copy("l0", f"run{i}") for i in range(len(batches))]
    for i, (run, batch) in enumerate(zip(runs, batches, strict=True)):
        rename(run, f"run{i}")
        run.save_runtime(timed(13.44, batch=batch or 16, threads=batch and 1))
    results, *_ = page(*configurations(runs)).sections
    assert said in results.paragraphs[0]


def test_a_report_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        report([], tmp_path / "out")


def rename(run: Run, name: str) -> None:
    text = (run.folder / "config.toml").read_text()
    line = f"name = {json.dumps(name)}"
    (run.folder / "config.toml").write_text(re.sub("^name = .*$", lambda _: line, text, count=1, flags=re.MULTILINE))


def test_many_runs_with_hostile_names_stay_small(copy: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = ["<script>alert(1)</script> </pre>", "n" * 400, "_a $x^$ \\frac{ {{ 7 * 7 }} a|b", "数 \t\n模 🙂"]
    runs = []
    for i, name in enumerate([*hostile, *(f"way-{i}" for i in range(9))]):
        runs.append(copy("l0-80", f"run{i}"))
        rename(runs[-1], name)
    figures = [figure for section in page_of(runs).sections for figure in section.figures]
    assert len(figures) <= 12
    omitted = [figure for figure in figures if "Only the first 12 of 13 configurations are drawn" in figure.caption]
    assert len(omitted) >= 4
    assert len(json.loads(as_json(configurations(runs)[0]))) == 13
    # Drawn with a lower limit, which takes a third of the time; the hostile names are the first ones.
    monkeypatch.setattr(panels, "MOST", len(hostile))
    html = shown(runs[: len(hostile) + 2])
    assert is_self_contained(html)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "{{ 7 * 7 }}" in html
    assert pictures(html) == [figure.name for figure in figures]
    assert len(html) < 1_200_000
    assert html.count("Only the first 4 of 6 configurations are drawn") == len(omitted)
    assert all(f">way-{i}<" in html for i in range(2))


@pytest.mark.parametrize("where", ["desktop", "phone"])
def test_a_browser_shows_the_comparison(where: str, seen: dict[str, SimpleNamespace]) -> None:
    found, phone = seen[where], where == "phone"
    assert found.console == ""
    assert found.needed <= found.width == (360 if phone else 1280)
    assert found.visible == [True] * 8
    assert found.narrow == [phone] * 8


def test_multiplications_reach_the_table(comparison: Path) -> None:
    rows = json.loads((comparison.parent / "table.json").read_text())
    saved = {row["name"]: row["multiplications_saved"]["mean"] for row in rows}
    assert saved["dense"] == 0
    assert 0.5 < saved["l0-80"] < 1
    assert "multiplications saved, %" in (comparison.parent / "table.md").read_text()
    assert f'<td class=" number">{100 * saved["admm"]:.2f}</td>' in comparison.read_text(encoding="utf-8")


def cells(html: str, title: str) -> list[list[str]]:
    """Return the rows of a table of the page."""
    table = re.search(rf'aria-label="{re.escape(title)}".*?</table>', html, re.DOTALL)
    assert table
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", table[0])[1:]]


def test_the_table_of_layers(trained: dict[str, Path], l0: Path, comparison: Path) -> None:
    run = Run(trained["l0"])
    html = l0.read_text(encoding="utf-8")
    *layers, total = cells(html, "Where the zeros are")
    result = run.result()
    assert result is not None
    assert [row[0] for row in layers] == list(result["layers"])
    first = result["layers"][layers[0][0]]
    assert layers[0][1:5] == [
        "8 × 1 × 3 × 3".replace(" ", "\u00a0"),
        "72",
        f"{100 * (1 - first['density']):.2f}",
        f"{72 * 8 * 8:,}",
    ]
    assert layers[0][5:7] == [f"{72 * 64 * first['density']:,.0f}", f"{100 * first['density']:.2f}"]
    assert layers[0][7] == "0.0447", "√(2λ/β)"
    assert total[:4] == ["all layers", "", f"{result['weights']:,}", f"{100 * result['sparsity']:.2f}"]
    html = comparison.read_text(encoding="utf-8")
    assert [row[7] for row in cells(html, "Layers of admm")[:-1]] == ["–"] * len(layers), "it has no threshold"
    healed = cells(html, "Layers of l0-80")[:-1]
    assert all(0 < float(row[7]) < 1 for row in healed), "that of the end of the hold phase"


def test_the_names_of_long_runs_are_whole(copy: Callable[..., Run]) -> None:
    runs = [copy("l0", "a"), copy("l0-80", "b")]
    for run, name in zip(
        runs, ("a name of a run that is rather long, asked for 90 %", "another of the same kind"), strict=True
    ):
        rename(run, name)
    told = page_of(runs)
    assert "…" not in replace(told, sections=[replace(section, figures=()) for section in told.sections]).html()
    for figure in (figure for section in told.sections for figure in section.figures):
        assert "…" not in figure.caption
        for size in (figure.size, figure.phone):
            assert size is not None
            figure.draw(canvas := Canvas(figsize=size))
            letters = canvas.findobj(Text)
            assert letters
            assert not [text.get_text() for text in letters if "…" in text.get_text()], figure.name


def test_a_browser_shows_a_run_with_a_long_name(seen: dict[str, SimpleNamespace]) -> None:
    found = seen["long name"]
    assert found.console == ""
    assert found.needed <= found.width == 360
    assert found.visible
    assert all(found.visible)


def told(run: Run, **result: Any) -> str:
    found = run.result()
    assert found is not None
    norms = {"w": {"a": [1.0, 2.0]}, "u": {"a": [1.0, 2.0]}}
    (run.folder / "result.json").write_text(json.dumps(found | {"channel_norms": norms} | result))
    picture = channels(configurations([run])[0])
    assert picture is not None
    return picture.caption


def test_channels_are_those_that_the_compiler_removes(copy: Callable[..., Run]) -> None:
    run = copy("l0-80")
    assert "14 of 32 channels are left out of a packed network" in told(run, channels={"removed": 14, "total": 32})
    assert "No channel of any network can be left out entirely." in told(run, channels={"removed": 0, "total": 32})
    for unknown in (None, {}):  # results of before
        assert "No network has a channel that is zero." in told(run, channels=unknown)
