from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rvsm.report.numbers import Mean
from rvsm.results.experiments import CHANCE, UNKNOWN_SPREAD, Difference, Experiment, collections, grouped
from rvsm.results.reading import summary_of

Make = Callable[..., dict[str, Experiment]]
Line = Callable[..., dict[str, Any]]


def test_seeds_of_one_name_are_one_experiment(experiments: Make) -> None:
    found = experiments(
        vgg16_l0=[{"accuracy": 0.92, "seed": 2}, {"accuracy": 0.90, "seed": 0}], vgg16_base={"accuracy": 0.93}
    )
    assert list(found) == ["vgg16-l0", "vgg16-base"]
    assert [run.seed for run in found["vgg16-l0"].runs] == [0, 2]
    assert found["vgg16-l0"].accuracy.text(100, 2) == "91.00 ± 1.41"
    assert found["vgg16-base"].dense
    assert found["vgg16-base"].setting == "vgg16 at width 0.25, 2 epochs of batches of 128, cifar10"


def test_one_name_has_one_set_of_options(line: Line) -> None:
    lines = [line("a"), line("a", seed=1, config="99999999")]
    with pytest.raises(ValueError, match=r"here has runs called a with different options \(0123abcd, 99999999\)"):
        grouped(map(summary_of, lines), "here")


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("images", {"images": "aa"}, {"images": "bb"}),
        ("precision", {"about": {"precision": "float32"}}, {"about": {"precision": "bfloat16"}}),
    ],
)
def test_one_name_has_one_set_of_images_and_one_precision(
    kind: str, one: dict[str, Any], other: dict[str, Any], line: Line
) -> None:
    with pytest.raises(ValueError, match=f"runs called a with different {kind} "):
        grouped(map(summary_of, [line("a", **one), line("a", seed=1, **other)]))
    unknown = [line("a", **one), line("a", seed=1, about={})]
    assert len(grouped(map(summary_of, unknown))["a"].runs) == 2


def test_two_files_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="have one name; rename one of them"):
        collections([tmp_path / "a" / "cpu.jsonl", tmp_path / "b" / "cpu.jsonl"])


class TestDifference:
    def test_one_seed(self) -> None:
        far = Difference.of(Mean(0.9, None, 1), Mean(0.916, None, 1))
        near = Difference.of(Mean(0.906, None, 1), Mean(0.902, None, 1))
        assert str(far) == "−1.60 points"
        assert str(near) == "+0.40 points, not told apart by one seed"
        assert near.resolution == UNKNOWN_SPREAD
        assert CHANCE == "1 point"

    def test_several_seeds(self) -> None:
        near, far = Mean(0.906, 0.003, 3), Mean(0.912, 0.003, 3)
        base = Mean(0.902, 0.004, 3)
        how = "(seeds spread by 0.50, told apart from 0.80 on)"  # 2.78 · 0.50 / √3
        assert str(Difference.of(near, base)) == f"+0.40 points {how}, not told apart"
        assert str(Difference.of(far, base)) == f"+1.00 points {how}"
        assert Difference.of(near, Mean(0.902, None, 1)).spread is None

    @pytest.mark.parametrize(
        ("counts", "student"), [((2, 2), 4.30), ((2, 3), 3.18), ((4, 5), 2.45), ((5, 5), 2.31), ((400, 400), 2.00)]
    )
    def test_few_seeds_resolve_little(self, counts: tuple[int, int], student: float) -> None:
        found = Difference.of(Mean(0.9, 0.003, counts[0]), Mean(0.8, 0.004, counts[1]))
        error = (0.3**2 / counts[0] + 0.4**2 / counts[1]) ** 0.5
        assert found.resolution == pytest.approx(student * error)

    def test_equal_means_without_a_spread_are_not_told_apart(self) -> None:
        assert not Difference.of(Mean(0.9, 0.0, 2), Mean(0.9, 0.0, 2)).told_apart

    @given(st.floats(0, 1), st.floats(0, 1))
    def test_it_changes_its_sign_with_the_order(self, one: float, other: float) -> None:
        there, back = (Difference.of(Mean(a, None, 1), Mean(b, None, 1)) for a, b in ((one, other), (other, one)))
        assert there.points == -back.points
        assert there.told_apart == back.told_apart
