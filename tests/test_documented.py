"""The names in the documents exist."""

import re
from functools import reduce
from pathlib import Path

import pytest

import rvsm

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"(?<![\w./-])rvsm(?!\.py\b)((?:\.[A-Za-z_]\w*)+)")


def documented() -> list[str]:
    """Return what README.md and docs/ say of the package, without "rvsm."; the page on the theory is the paper's."""
    pages = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.stem != "theory")]
    found = {match[1] for page in pages for match in NAME.finditer(page.read_text(encoding="utf-8"))}
    return sorted(name.removeprefix(".") for name in found)


@pytest.mark.parametrize("name", documented())
def test_a_name_in_the_documents_is_there_after_importing_the_package(name: str) -> None:
    first, *rest = name.split(".")
    found = rvsm.__getattr__(first)  # not getattr: a submodule that another test has imported would be there anyway
    assert reduce(getattr, rest, found) is not None


def test_the_documents_name_something() -> None:
    assert {"compile", "export.to_onnx", "bench.compare", "train.load_network"} <= set(documented())


def test_the_numbers_of_the_page_on_choosing_are_committed_results() -> None:
    tables = [
        line for line in (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"
    ]
    numbers = {number for line in tables for number in re.findall(r"\d+\.\d{2}\b", line) if "`" not in line}
    sources = ("docs/results.md", "README.md", "benchmarks/README.md", "benchmarks/runtime.md")
    committed = "".join((ROOT / source).read_text(encoding="utf-8") for source in sources)
    assert len(numbers) > 30
    assert {number for number in numbers if number not in committed} == set()
