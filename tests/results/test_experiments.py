from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rvsm.results.experiments import Experiment, collections, grouped
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
