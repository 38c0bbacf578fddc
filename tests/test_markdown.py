import pytest

from rvsm.markdown import cell


@pytest.mark.parametrize(
    ("text", "shown"), [("a|b", r"a\|b"), ("<b>*x*", r"&lt;b>\*x\*"), ("a\nb", "a b"), ("_a_`", r"\_a\_\`")]
)
def test_cells_stay_cells(text: str, shown: str) -> None:
    assert cell(text) == shown
