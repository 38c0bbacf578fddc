from collections.abc import Callable
from typing import Any

import pytest

from rvsm.paper.results.collections import Collection, Source
from rvsm.paper.results.printed import TABLE_1, TABLE_2
from rvsm.paper.results.tables import costs, dense_of, headline, networks, paper_table
from rvsm.report import Configuration

Make = Callable[..., dict[str, Configuration]]

ENGINES = [
    {"engine": engine, "precision": "float32", "batch": batch, "milliseconds": milliseconds}
    for engine, batch, milliseconds in [
        *[("PyTorch", 1, 4.0), ("OpenVINO", 1, 3.0), ("rvsm", 1, 1.0)],
        *[("PyTorch", 64, 40.0), ("OpenVINO", 64, 60.0), ("rvsm", 64, 25.0)],
        ("rvsm", 16, 5.0),
    ]
]


def files(collection: Collection, **changes: tuple[str, ...]) -> dict[str, Source]:
    return {
        name: Source(f"experiments/cpu/{name}.toml", changes.get(name.replace("-", "_"), ()))
        for name in collection.experiments
    }


def test_table_1_to_the_letter(experiments: Make) -> None:
    c = Collection(
        "cpu",
        experiments(
            vgg16_tl1={"accuracy": 0.84, "sparsity": 0.61, "multiplications_saved": None, "minutes": 5.25},
            vgg16_base={"accuracy": 0.85},
            fastnet_dense={},
        ),
    )
    assert paper_table(TABLE_1, c, files(c)) == (
        "**Table 1: RVSM under different penalties, VGG-16 on CIFAR-10**\n"
        "\n"
        "| row | paper: accuracy, % | zeros, % | to base | ours: accuracy of w, % | of u, % | to base | zeros, % |"
        " zeros of all, % | multiplications saved, % | minutes | seeds | experiment |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
        "| base model | 93.82 | 0.00 | – | 85.00 | 85.00 | – | 0.00 | 0.00 | 0.00 | 30 | 1 |"
        " [vgg16-base](../experiments/cpu/vgg16-base.toml) 0123abcd |\n"
        "| Tℓ1 | 93.07 | 63.34 | −0.75 | 84.00 | 84.00 | −1.00 | 61.00 | 61.00 | – | 5.2 | 1 |"
        " [vgg16-tl1](../experiments/cpu/vgg16-tl1.toml) 0123abcd |\n"
        "\n"
        "The paper: the whole network, λ = 1e-5, β = 1e-2, a = 1; the number of epochs is not stated. Ours: vgg16 at"
        " width 0.25, 2 epochs of batches of 128, cifar10. “To base” is the accuracy of u minus that of the dense"
        " network of the same table, in points. “Zeros” is counted over the sparsified weights, “zeros of all” over all"
        " parameters. For rows with one seed, differences below 3.2 points may be chance. Not run yet: ℓ1; ℓ0; ℓ0, the"
        " paper's λ and β; ℓ0, as in the authors' scripts; ℓ0, target 86.9 %.\n"
    )
    assert paper_table(TABLE_2, c, files(c)) is None


def test_seeds_and_rows_that_the_paper_does_not_have(experiments: Make) -> None:
    c = Collection(
        "cpu",
        experiments(
            resnet18_sgd=[{"accuracy": 0.88}, {"accuracy": 0.90, "seed": 1}],
            resnet18_rvsm_l0_937=[{"accuracy": 0.87}, {"accuracy": 0.89, "seed": 1}],
            resnet18_mine={"accuracy": 0.5},
        ),
    )
    text = paper_table(TABLE_2, c, files(c))
    assert text is not None
    rows = text.splitlines()[4:7]
    assert rows[0].startswith("| SGD | 95.07 | 0.00 | – | 89.00 ± 1.41 | 89.00 ± 1.41 | – |")
    assert rows[1].startswith("| RVSM (ℓ0), target 93.7 % | – | – | – | 88.00 ± 1.41 | 88.00 ± 1.41 | −1.00 ± 2.00 |")
    assert rows[2].startswith("| resnet18-mine | – | – | – | 50.00 | 50.00 | −39.00 |")
    assert "± is one standard deviation over the seeds." in text
    assert "For rows with one seed" in text


def test_without_the_dense_run_there_is_no_difference(experiments: Make) -> None:
    c = Collection("cpu", experiments(vgg16_l0={"accuracy": 0.84}))
    text = paper_table(TABLE_1, c, {"vgg16-l0": Source(None)})
    assert text is not None
    assert "| ℓ0 | 92.54 | 86.89 | −1.28 | 84.00 | 84.00 | – |" in text
    assert text.splitlines()[4].endswith("| 1 | vgg16-l0 0123abcd |")


def test_a_run_with_other_options_than_its_file_is_marked(experiments: Make) -> None:
    c = Collection("cpu", experiments(vgg16_l0={}))
    text = paper_table(TABLE_1, c, files(c, vgg16_l0=("training.epochs 12 → 2",)))
    assert text is not None
    assert "(../experiments/cpu/vgg16-l0.toml) 0123abcd † |" in text
    assert "† vgg16-l0 was run with options that differ from its file: training.epochs 12 → 2." in text


RUNTIME: dict[str, Any] = {"file_bytes": 52_400, "threads": 1, "engines": ENGINES}


class TestNetworks:
    def test_to_the_letter(self, experiments: Make) -> None:
        c = Collection(
            "flagship",
            experiments(
                fastnet_dense={"accuracy": 0.93, "file_bytes": 8_000_000},
                fastnet_rvsm_l0_95={
                    "accuracy": 0.92,
                    "sparsity": 0.95,
                    "multiplications_saved": 0.88,
                    "file_bytes": 8_000_000,
                    "runtime": RUNTIME,
                    "budget": {"sparsity": 0.95, "by": "flops"},
                },
                resnet18_dense={"accuracy": 0.94},
            ),
        )
        assert networks(c, {name: Source(None) for name in c.experiments}) == (
            "| network | method | target | accuracy dense, % | accuracy sparse, % | zeros, % |"
            " multiplications saved, % | file, kB | packed, kB |"
            " speed at 1, × | speed at 16, × | speed at 64, × | minutes | seeds | experiment |\n"
            "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
            "| resnet18, width 0.25, cifar10 | dense | – | 94.00 | – | 0.00 | 0.00 | – | – | – | – | – | 30 | 1 |"
            " resnet18-dense 0123abcd |\n"
            "| fastnet, width 0.25, cifar10 | RVSM | 95 % of the multiplications |"
            " 93.00 | 92.00 | 95.00 | 88.00 | 8,000 | 52 | 3.0 | – |"
            " 1.6 | 30 | 1 | fastnet-rvsm-l0-95 0123abcd, fastnet-dense 0123abcd |\n"
            "\n"
            "“File” is the size of the network's weights as safetensors; “packed” is the size of the file that rvsm"
            " pack writes for the sparse network. Speed is that of the packed network in the sparse runtime, relative"
            " to the same network in the fastest dense float32 engine at that batch size (OpenVINO, PyTorch; threads:"
            " 1). For rows with one seed, differences below 3.2 points may be chance.\n"
        )

    def test_the_same_in_short(self, experiments: Make) -> None:
        sparse = {
            "accuracy": 0.92,
            "sparsity": 0.95,
            "multiplications_saved": 0.88,
            "file_bytes": 8_000_000,
            "epochs": 8,
        }
        c = Collection(
            "flagship",
            experiments(
                fastnet_dense={"accuracy": 0.93, "epochs": 8},
                fastnet_rvsm={**sparse, "runtime": RUNTIME, "budget": {"speedup": 6.0}},
                resnet18_rvsm=sparse,
            ),
        )
        assert headline(c) == (
            "| network | target | accuracy dense → sparse, % | zeros, % | multiplications saved, % |"
            " file dense → packed, MB | faster at batch 1 / 16 / 64 |\n"
            "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
            "| fastnet, 8 epochs | 6 × the speed | 93.00 → 92.00 | 95.00 | 88.00 | 8.00 → 0.05 | 3.0 / – / 1.6 × |\n"
            "| resnet18, 8 epochs | – | – → 92.00 | 95.00 | 88.00 | 8.00 → – | – / – / – × |\n"
        )

    def test_the_fastest_other_engine_counts(self, experiments: Make) -> None:
        (one,) = experiments(fastnet_rvsm={"runtime": RUNTIME}).values()
        runtime = one.outcomes[0].runtime
        assert runtime is not None
        assert runtime.speedup(1) == (3.0, "OpenVINO")
        assert runtime.speedup(64) == (1.6, "PyTorch")
        assert runtime.speedup(16) is None

    def test_engines_of_another_precision_have_a_column_of_their_own(self, experiments: Make) -> None:
        half = {"engine": "OpenVINO, bfloat16", "precision": "bfloat16", "batch": 64, "milliseconds": 30.0}
        runtime = {**RUNTIME, "engines": [*ENGINES, half]}
        text = headline(Collection("flagship", experiments(fastnet_rvsm={"runtime": runtime})))
        assert "| faster at batch 1 / 16 / 64 | than bfloat16, at batch 1 / 16 / 64 |" in text
        assert "| 3.0 / – / 1.6 × | – / – / 1.2 × |" in text

    def test_the_dense_network_of_the_same_shape(self, experiments: Make) -> None:
        found = experiments(fastnet_dense={}, fastnet_dense_long={"epochs": 9}, resnet18_dense={}, fastnet_rvsm={})
        assert dense_of(found["fastnet-rvsm"], found) is found["fastnet-dense"]
        assert dense_of(found["fastnet-rvsm"], {}) is None
        longer = experiments(fastnet_rvsm={"epochs": 9})["fastnet-rvsm"]
        assert dense_of(longer, found) is found["fastnet-dense-long"]

    def test_trained_otherwise_it_is_no_dense_network_to_compare_with(self, experiments: Make) -> None:
        found = experiments(fastnet_dense={}, fastnet_rvsm={}, fastnet_admm={"epochs": 8})
        slow = {"options": {**found["fastnet-rvsm"].first.options, "optimizer": {"name": "sgd", "lr": 0.001}}}
        assert dense_of(found["fastnet-rvsm"], found) is not None
        assert dense_of(found["fastnet-admm"], found) is None
        (e,) = experiments(fastnet_rvsm=slow).values()
        assert dense_of(e, found) is None

    def test_one_of_the_same_precision_is_preferred_and_another_precision_is_said(self, experiments: Make) -> None:
        half = {"about": {"precision": "bfloat16"}}
        found = experiments(fastnet_dense={"accuracy": 0.93}, fastnet_rvsm={"accuracy": 0.91, **half})
        assert dense_of(found["fastnet-rvsm"], found) is found["fastnet-dense"]
        assert "| 93.00 (float32) → 91.00 |" in headline(Collection("flagship", found))
        found |= experiments(fastnet_dense_half={"accuracy": 0.92, **half})
        assert dense_of(found["fastnet-rvsm"], found) is found["fastnet-dense-half"]
        assert "| 92.00 → 91.00 |" in headline(Collection("flagship", found))

    def test_of_other_images_it_is_another_network(self, experiments: Make) -> None:
        found = experiments(fastnet_dense={"images": "aa"}, fastnet_rvsm={"images": "bb"}, fastnet_admm={})
        assert dense_of(found["fastnet-rvsm"], found) is None
        assert dense_of(found["fastnet-admm"], found) is found["fastnet-dense"]

    @pytest.mark.parametrize(
        ("method", "penalty", "said"),
        [
            ("rvsm", "l0", "RVSM with ℓ0"),
            ("rvsm-published", "l0", "RVSM of the published script with ℓ0"),
            ("magnitude", None, "magnitude pruning"),
        ],
    )
    def test_methods_have_the_names_that_reports_give_them(
        self, method: str, penalty: str | None, said: str, experiments: Make
    ) -> None:
        options: dict[str, Any] = {"data": {"name": "digits"}, "model": {"name": "a"}, "method": {"name": method}}
        options |= {} if penalty is None else {"penalty": {"name": penalty}}
        c = Collection("flagship", experiments(a={"options": options}))
        assert f"| {said} |" in networks(c, {"a": Source(None)})


class TestCosts:
    def test_one_machine(self, experiments: Make) -> None:
        c = Collection("cpu", experiments(a=[{}, {"seed": 1, "minutes": None}], b={"images_per_second": None}))
        assert costs(c) == (
            "| experiment | epochs | minutes | images per second |\n"
            "| --- | ---: | ---: | ---: |\n"
            "| a | 2 | 30 | 500 ± 0 |\n"
            "| b | 2 | 30 | – |\n"
            "\n"
            "3 runs, 1.0 hours in all, on a processor, 1 thread, float32, torch 2.13.\n"
        )

    def test_several_machines(self, experiments: Make) -> None:
        c = Collection("cpu", experiments(a={}, b={"about": {"machine": "another | one", "threads": 2}}))
        text = costs(c)
        assert "| a | 2 | 30 | 500 | a processor, 1 thread, float32, torch 2.13 |" in text
        assert r"| b | 2 | 30 | 500 | another \| one, 2 threads, unknown precision |" in text
        assert text.endswith("\n2 runs, 1.0 hours in all.\n")
