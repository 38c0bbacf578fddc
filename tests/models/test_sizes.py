import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.models.sizes import check, scaled


@given(st.lists(st.integers(1, 512), max_size=5), st.floats(1e-6, 8))
def test_scaled_is_rounded_and_at_least_1(channels: list[int], width: float) -> None:
    for before, after in zip(channels, scaled(channels, width), strict=True):
        assert after >= 1
        assert after == 1 or abs(after - width * before) <= 0.5


@pytest.mark.parametrize("width", [0, -0.5, float("nan"), float("inf")])
def test_impossible_widths(width: float) -> None:
    with pytest.raises(ValueError, match=f"width must be > 0 but is {width}"):
        scaled((16,), width)


def test_check() -> None:
    check(classes=1, channels=1, size=4, smallest=4)
    with pytest.raises(ValueError, match="at least 4×4 pixels but size is 3"):
        check(classes=1, channels=1, size=3, smallest=4)
