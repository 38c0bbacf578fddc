"""What is committed: each number of the page comes from a line of results, and each line from a file."""

from pathlib import Path

import pytest

from rvsm.collect import LARGEST
from rvsm.paper.results.collections import collections, sources
from rvsm.paper.results.documents import refreshed
from rvsm.paper.results.render import Rendering, rendering

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "results").glob("*.jsonl"))


@pytest.fixture(scope="module")
def made() -> Rendering:
    return rendering(FILES, experiments=ROOT / "experiments", folder="results")


@pytest.mark.parametrize("name", ["docs/results.md", "docs/choosing.md", "README.md"])
def test_the_page_is_what_the_results_say(name: str, made: Rendering) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- results:" in page
    assert refreshed(page, made.parts) == page, f"run: rvsm results results/*.jsonl --docs {name}"


def test_the_other_files_are_what_the_results_say(made: Rendering) -> None:
    for name, text in made.files.items() if FILES else ():
        assert (ROOT / "results" / name).read_text(encoding="utf-8") == text, f"run rvsm results: {name} is old"
    for figure in made.figures:
        picture = ROOT / "results" / "pictures" / f"{figure.name}.png"
        assert picture.stat().st_size < 300_000


def test_lines_come_from_files_of_experiments() -> None:
    for collection in collections(FILES):
        for name, source in sources(collection, ROOT / "experiments").items():
            file = f"experiments/{collection.name}/{name}.toml"
            assert source.path == file, f"{name} of results/{collection.name}.jsonl should have the file {file}"
            assert not source.changes, f"{name} was run with options that differ from {file}"


def test_files_of_results_are_small() -> None:
    assert all(file.stat().st_size <= LARGEST for file in FILES)
