from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rvsm.config import read_config
from rvsm.paper.results.collections import Collection, Source, collections, grouped, setting, sources
from rvsm.records import Record
from rvsm.report import Configuration

Make = Callable[..., dict[str, Configuration]]
Line = Callable[..., dict[str, Any]]

FILE = """
[method]
name = "dense"
[training]
epochs = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("cpu", "flagship"):
        (tmp_path / "experiments" / name).mkdir(parents=True)
    (tmp_path / "experiments" / "cpu" / "a.toml").write_text(FILE)
    return tmp_path / "experiments"


@pytest.fixture
def collection(folder: Path, line: Callable[..., dict[str, Any]]) -> Callable[..., Collection]:
    """Return what makes a collection of one run of the file a.toml, with flags."""

    def made(*flags: str, name: str = "a") -> Collection:
        config = read_config(folder / "cpu" / "a.toml", flags)
        sections = {key: value for key, value in config.table().items() if key not in ("name", "seed")}
        options = {key: {k: v for k, v in section.items() if k != "path"} for key, section in sections.items()}
        return Collection("cpu", grouped([Record.of_line(line(name, config=config.fingerprint(), options=options))]))

    return made


def test_the_file_of_the_name(folder: Path, collection: Callable[..., Collection]) -> None:
    assert sources(collection(), folder) == {"a": Source("experiments/cpu/a.toml")}
    assert sources(collection(name="b"), folder) == {"b": Source(None)}
    assert sources(collection(), folder / "nothing") == {"a": Source(None)}


def test_the_folder_of_the_collection_comes_first(folder: Path, collection: Callable[..., Collection]) -> None:
    (folder / "a.toml").write_text(FILE.replace("3", "4"))
    (folder / "flagship" / "a.toml").write_text(FILE.replace("3", "5"))
    assert sources(collection(), folder)["a"] == Source("experiments/cpu/a.toml")


def test_changed_options_are_listed(folder: Path, collection: Callable[..., Collection]) -> None:
    found = sources(collection("--training.epochs", "7", "--training.threads", "2"), folder)["a"]
    assert found == Source("experiments/cpu/a.toml", ("training.epochs 3 → 7",))


def test_what_belongs_to_a_machine_is_no_change(folder: Path, collection: Callable[..., Collection]) -> None:
    assert sources(collection("--training.threads", "2", "--training.device", "cpu"), folder)["a"].changes == ()


def test_a_file_that_cannot_be_read(folder: Path, collection: Callable[..., Collection]) -> None:
    made = collection()
    (folder / "cpu" / "a.toml").write_text('[method]\nname = "none"\n')
    (said,) = sources(made, folder)["a"].changes
    assert said.startswith("the options cannot be compared (")
    assert "a.toml: unknown method.name 'none'" in said


def test_a_place_of_images_is_no_change_and_hides_none(folder: Path, collection: Callable[..., Collection]) -> None:
    photos = '[data]\nname = "folder"\npath = "photos"\n[method]\nname = "dense"\n'
    (folder / "cpu" / "a.toml").write_text(photos)
    made = collection("--data.name", "folder", "--data.path", "/elsewhere/photos", "--training.epochs", "3")
    (said,) = sources(made, folder)["a"].changes
    assert said.startswith("training.epochs ")


def test_seeds_of_one_name_are_one_experiment(experiments: Make) -> None:
    found = experiments(
        vgg16_l0=[{"accuracy": 0.92, "seed": 2}, {"accuracy": 0.90, "seed": 0}], vgg16_base={"accuracy": 0.93}
    )
    assert list(found) == ["vgg16-l0", "vgg16-base"]
    assert [run.seed for run in found["vgg16-l0"].runs] == [0, 2]
    assert found["vgg16-l0"].accuracy_u.percent == "91.00 ± 1.41"
    assert found["vgg16-base"].dense
    assert setting(found["vgg16-base"]) == "vgg16 at width 0.25, 2 epochs of batches of 128, cifar10"


def test_one_name_has_one_set_of_options(line: Line) -> None:
    lines = [line("a"), line("a", seed=1, config="99999999")]
    with pytest.raises(ValueError, match=r"here has runs called a with different options \(0123abcd, 99999999\)"):
        grouped(map(Record.of_line, lines), "here")


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
        grouped(map(Record.of_line, [line("a", **one), line("a", seed=1, **other)]))
    unknown = [line("a", **one), line("a", seed=1, about={})]
    assert len(grouped(map(Record.of_line, unknown))["a"].runs) == 2


def test_two_files_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="have the same name; rename one of them"):
        collections([tmp_path / "a" / "cpu.jsonl", tmp_path / "b" / "cpu.jsonl"])
