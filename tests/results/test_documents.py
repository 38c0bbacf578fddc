from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.results.documents import EMPTY, marked, refresh, refreshed

DOCUMENT = """# Title

<!-- results: cpu/table-1 -->

| old |

<!-- end -->

Between, with a <!-- comment --> and <!-- end --> in a line.

<!-- results: flagship/networks -->
<!-- end -->
Last line"""


def test_only_the_text_between_the_comments_changes() -> None:
    assert refreshed(DOCUMENT, {"cpu/table-1": "| new |\n", "cpu/costs": "not asked for"}) == (
        "# Title\n\n<!-- results: cpu/table-1 -->\n\n| new |\n\n<!-- end -->\n\n"
        "Between, with a <!-- comment --> and <!-- end --> in a line.\n\n"
        f"<!-- results: flagship/networks -->\n\n{EMPTY}\n<!-- end -->\nLast line"
    )


def test_a_second_time_changes_nothing() -> None:
    parts = {"cpu/table-1": "one\n\ntwo"}
    once = refreshed(DOCUMENT, parts)
    assert refreshed(once, parts) == once


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("<!-- results: cpu/table-3 -->\n<!-- end -->", "names no part; choose from table-1, table-2"),
        ("<!-- results: cpu/costs -->\ntext", r"<!-- results: cpu/costs --> has no end: put <!-- end -->"),
        ("<!-- results: cpu/costs -->\n<!-- results: cpu/table-1 -->\n<!-- end -->", "has no end"),
        (
            "<!-- results cpu/costs -->\n<!-- end -->",
            "expected a line such as .* but found '<!-- results cpu/costs",
        ),
        ("  <!-- results: cpu/costs -->\n<!-- end -->", "expected a line such as"),
    ],
)
def test_mistakes_are_told(document: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        refreshed(document, {})


texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="<\r"))


@given(texts, texts, texts)
def test_the_rest_stays_to_the_letter(before: str, part: str, after: str) -> None:
    document = f"{before}\n{marked('cpu/costs', 'old')}{after}"
    assert refreshed(document, {"cpu/costs": part}) == f"{before}\n{marked('cpu/costs', part)}{after}"


def test_a_file_that_is_refused_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("<!-- results: cpu/costs -->")
    with pytest.raises(ValueError, match=r"a\.md: <!-- results: cpu/costs --> has no end"):
        refresh(file, {})
    assert file.read_text() == "<!-- results: cpu/costs -->"
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        refresh(tmp_path / "b.md", {})
