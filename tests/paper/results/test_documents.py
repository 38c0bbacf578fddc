from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.paper.results.documents import EMPTY, marked, refresh, refreshed, refreshed_file

DOCUMENT = """# Title

<!-- results: cpu/table-1 -->

| old |

<!-- end -->

Between, with a <!-- comment --> and <!-- end --> in a line.

<!-- results: flagship/networks -->
<!-- end -->
Last line"""


def test_only_the_text_between_the_comments_changes() -> None:
    assert refreshed(DOCUMENT, {"cpu/table-1": "| new |\n", "cpu/costs": "not in it"}) == (
        "# Title\n\n<!-- results: cpu/table-1 -->\n\n| new |\n\n<!-- end -->\n\n"
        "Between, with a <!-- comment --> and <!-- end --> in a line.\n\n"
        "<!-- results: flagship/networks -->\n\n*There is no file flagship.jsonl yet.*\n\n<!-- end -->\nLast line"
    )


def test_a_collection_that_is_not_given_keeps_its_text() -> None:
    document = DOCUMENT + "\n<!-- results: cpu/costs -->\nkept\n<!-- end -->\n"
    after = refreshed(document, {"flagship/networks": "new"})
    assert "| old |" in after
    assert "<!-- results: cpu/costs -->\nkept\n<!-- end -->\n" in after
    assert "\n\nnew\n\n" in after
    given = refreshed(document, {"cpu/table-1": "new"})
    assert given.endswith(f"<!-- results: cpu/costs -->\n\n{EMPTY}\n<!-- end -->\n")


def test_ends_of_lines_stay(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_bytes(b"a\r\n<!-- results: cpu/costs -->\r\nold\r\n<!-- end -->\r\nb\n<!-- x -->\r\n")
    refresh([file], {"cpu/costs": "one\ntwo"})
    assert file.read_bytes() == (
        b"a\r\n<!-- results: cpu/costs -->\r\n\r\none\r\ntwo\r\n\r\n<!-- end -->\r\nb\n<!-- x -->\r\n"
    )
    last = tmp_path / "b.md"
    last.write_bytes(b"<!-- results: cpu/costs -->\r\n<!-- end -->")
    assert refreshed_file(last, {"cpu/costs": "x"}) == ("<!-- results: cpu/costs -->\r\n\r\nx\r\n\r\n<!-- end -->")


def test_a_second_time_changes_nothing() -> None:
    parts = {"cpu/table-1": "one\n\ntwo"}
    once = refreshed(DOCUMENT, parts)
    assert refreshed(once, parts) == once


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("<!-- results: cpu/table-3 -->\n<!-- end -->", "names an unknown part; choose from table-1, table-2"),
        ("<!-- results: cpu/costs -->\ntext", r"<!-- results: cpu/costs --> has no end: put <!-- end -->"),
        ("<!-- results: cpu/costs -->\n<!-- results: cpu/table-1 -->\n<!-- end -->", "has no end"),
        (
            "<!-- results cpu/costs -->\n<!-- end -->",
            "expected a line such as .* but found '<!-- results cpu/costs",
        ),
        ("  <!-- results: cpu/costs -->\n<!-- end -->", "expected a line such as"),
        ("# Title\n<!-- result: cpu/costs -->\n<!-- end -->", "there is nothing to rewrite: expected a line such as"),
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"<!-- results: cpu/costs -->", r"b\.md: <!-- results: cpu/costs --> has no end"),
        (b"abc\xff", r"b\.md cannot be read as UTF-8: invalid start byte at byte 3"),
        (None, r"b\.md cannot be read: No such file"),
    ],
)
def test_if_one_file_is_refused_all_stay_as_they_were(text: bytes | None, said: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "a.md", tmp_path / "b.md"
    good.write_text("<!-- results: cpu/costs -->\n<!-- end -->\n")
    if text is not None:
        bad.write_bytes(text)
    with pytest.raises(ValueError, match=said):
        refresh([good, bad], {"cpu/costs": "new"})
    assert good.read_text() == "<!-- results: cpu/costs -->\n<!-- end -->\n"
    assert not bad.exists() or bad.read_bytes() == text
