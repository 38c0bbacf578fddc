from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rvsm.pages import Figure
from rvsm.paper.results.collections import Collection
from rvsm.paper.results.pictures import pictures
from rvsm.paper.results.pictures.channels import channels
from rvsm.paper.results.pictures.rows import layers, losses
from rvsm.paper.results.pictures.tradeoff import mark, tradeoff
from rvsm.paper.results.printed import TABLE_1, TABLE_2, PaperTable
from rvsm.report import Configuration

Make = Callable[..., dict[str, Configuration]]


def shown(figure: Figure | None) -> list[str]:
    """Return all texts of a picture, wide and narrow."""
    assert figure is not None
    assert figure.phone is not None
    texts = []
    for size in (figure.size, figure.phone):
        canvas = figure._drawn(size)
        texts += [text.get_text() for text in canvas.findobj(lambda a: hasattr(a, "get_text"))]
    return texts


def test_nothing_to_draw(experiments: Make) -> None:
    alone = Collection("cpu", experiments(vgg16_l0={"sparsity": 0.9, "curve": {}, "layers": {}}))
    assert tradeoff(alone) is None
    assert losses(TABLE_1, alone) is None
    assert layers(TABLE_1, alone) is None
    assert channels(alone) is None
    assert pictures(alone) == []
    assert pictures(Collection("flagship", experiments(fastnet_dense={}))) == []


def test_tradeoff_is_to_the_own_dense_network(experiments: Make) -> None:
    c = Collection(
        "cpu",
        experiments(
            vgg16_base=[{"accuracy": 0.85}, {"accuracy": 0.86, "seed": 1}],
            vgg16_l0=[{"accuracy": 0.84, "sparsity": 0.8}, {"accuracy": 0.85, "sparsity": 0.8, "seed": 1}],
        ),
    )
    figure = tradeoff(c)
    assert figure is not None
    canvas = figure._drawn(figure.size)
    points = [tuple(map(float, xy)) for line in canvas.axes[0].lines for xy in line.get_xydata()]  # type: ignore[union-attr]
    assert any(x == pytest.approx(80) and y == pytest.approx(-1) for x, y in points)
    assert any(x == pytest.approx(86.89) and y == pytest.approx(-1.28) for x, y in points)
    assert "as the paper prints it" in shown(figure)
    assert "Bars are one standard deviation" in figure.caption
    assert "one seed" not in figure.caption
    assert "the paper's over all weights" in figure.caption


def test_equal_seeds_are_several_all_the_same(experiments: Make) -> None:
    twice = [{"accuracy": 0.8}, {"accuracy": 0.8, "seed": 1}]
    figure = tradeoff(Collection("cpu", experiments(vgg16_base=twice, vgg16_l0=twice, vgg16_l1={})))
    assert figure is not None
    assert (
        "Bars are one standard deviation over the seeds. For marks with one seed, differences of up to 3.2 points"
        in figure.caption
    )


def test_a_broken_network_does_not_press_the_others_together(experiments: Make) -> None:
    c = Collection(
        "cpu",
        experiments(
            vgg16_base={"accuracy": 0.85},
            vgg16_l1={"accuracy": 0.84, "sparsity": 0.4},
            vgg16_l0={"accuracy": 0.1, "sparsity": 0.9},
        ),
    )
    figure = tradeoff(c)
    assert figure is not None
    assert figure._drawn(figure.size).axes[0].get_ylim()[0] > -5
    assert {"ℓ1", "ℓ0", "−75.0 ↓"} <= set(shown(figure))
    assert "Networks that lose more than ten points are at the lower edge" in figure.caption


def test_losses_of_the_sparse_rows(experiments: Make) -> None:
    c = Collection("cpu", experiments(resnet18_sgd={}, resnet18_admm={}, resnet18_rvsm_l0={}))
    figure = losses(TABLE_2, c)
    assert figure is not None
    assert {"ADMM 60 %", "RVSM", "validation loss", "epoch"} <= set(shown(figure))
    assert "SGD" not in shown(figure)
    assert "scripts" not in figure.caption


def test_losses_that_are_one_by_construction_are_not_drawn(experiments: Make) -> None:
    c = Collection("cpu", experiments(resnet18_admm={}, resnet18_rvsm_l0_published={}))
    figure = losses(TABLE_2, c)
    assert figure is not None
    assert "RVSM, scripts" not in shown(figure)
    assert "The authors' scripts, in which u overwrites w after each epoch, are not drawn." in figure.caption
    assert losses(TABLE_2, Collection("cpu", experiments(resnet18_admm_published={}))) is None


@pytest.mark.parametrize("table", [TABLE_1, TABLE_2])
def test_marks_are_told_apart(table: PaperTable) -> None:
    marks = [mark(row.experiment) for row in table.rows[1:]]
    assert len(set(marks)) == len(marks)


def test_layers_say_the_share_that_is_left(experiments: Make) -> None:
    found = experiments(
        vgg16_l0=[{"sparsity": 0.9}, {"sparsity": 0.8, "seed": 1}], vgg16_l1={"sparsity": 1.0}, vgg16_base={}
    )
    assert found["vgg16-l0"].densities == {"0.weight": pytest.approx(0.15)}
    figure = layers(TABLE_1, Collection("cpu", found))
    assert {"15", "0", "ℓ0", "ℓ1", "0.weight"} <= set(shown(figure))
    assert "The sparsest is 0.weight of ℓ1 with 0 %, the densest 0.weight of ℓ0 with 15 %." in figure.caption  # type: ignore[union-attr]


def test_channels_come_in_pairs(experiments: Make) -> None:
    norms = {"channel_norms": {"w": {"a": [1.0, 1.0, 0.5]}, "u": {"a": [1.0, 0.001, 0.0]}}}
    c = Collection("cpu", experiments(resnet18_rvsm_l0=norms, resnet18_admm=norms, resnet18_admm_937=norms))
    texts = shown(channels(c))
    assert {"RVSM (ℓ0)", "ADMM, target 60 %", "zero: 1 of 3\nbelow 1 %: 1"} <= set(texts)
    assert "ADMM, target 93.7 %" not in texts


def test_networks_with_their_speeds(experiments: Make) -> None:
    engines = [
        {"engine": engine, "precision": "float32", "batch": 1, "milliseconds": milliseconds}
        for engine, milliseconds in (("PyTorch", 5.0), ("rvsm", 2.0))
    ]
    runtime: dict[str, Any] = {"file_bytes": 10, "threads": 1, "engines": engines}
    sparse = {"accuracy": 0.9, "sparsity": 0.95}
    dense = {"accuracy": 0.91}
    timed = Collection("flagship", experiments(fastnet_dense=dense, fastnet_rvsm={**sparse, "runtime": runtime}))
    texts = shown(*pictures(timed))
    assert {"2.5 × at batch 1", "sparse 90.00", "dense 91.00", "fastnet-rvsm\n95.0 % zeros"} <= set(texts)
    plain = Collection("flagship", experiments(fastnet_rvsm=sparse))
    (figure,) = pictures(plain)
    assert "speed relative to the fastest dense engine, ×" not in shown(figure)
    assert "Right" not in figure.caption


def test_files_are_small(experiments: Make, tmp_path: Path) -> None:
    rows = {
        row.experiment.replace("-", "_"): {
            "sparsity": 0.0 if row is table.base else 0.9,
            "layers": {f"{i}.conv.weight": {"shape": [64, 64, 3, 3], "density": 0.1 + i / 100} for i in range(21)},
        }
        for table in (TABLE_1, TABLE_2)
        for row in table.rows
    }
    drawn = pictures(Collection("cpu", experiments(**rows)))
    assert len(drawn) == 6
    largest = max(drawn, key=lambda figure: figure.size[0] * figure.size[1])
    (file,) = largest.save(tmp_path, ["png"])
    assert file.stat().st_size < 300_000
