"""The file of a profile: complete, exact, and not trusted."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rvsm.timing import Curve, LayerTimes, Profile

PROFILE = Profile(
    "znver4, AVX-512",
    64,
    2,
    ((3, 32, 32), (7,)),
    1 / 3e4,
    {
        "conv.weight": LayerTimes((8, 3, 3, 3), "block of 4", Curve((0.0, 0.1, 1.0), (1e-5, 1 / 7e4, 1e-3))),
        "fc.weight": LayerTimes((10, 8), "element", Curve((0.0, 1.0), (0.0, 2e-6))),
    },
    Curve((0.0, 1e-4, 2e-3), (0.0, 1 / 3e4, 1e-3)),
)


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    PROFILE.save(file)
    assert Profile.load(file) == PROFILE
    assert Profile.load(file).digest == PROFILE.digest
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]
    tree = json.loads(file.read_text())
    assert (tree["format"], tree["version"], tree["batch"], tree["threads"]) == ("rvsm profile", 2, 64, 2)


def test_files_of_the_first_version_are_read_and_written(tmp_path: Path) -> None:
    first, file = replace(PROFILE, calls=None), tmp_path / "profile.json"
    first.save(file)
    assert json.loads(file.read_text())["version"] == 1
    assert Profile.load(file) == first


def changed(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda tree: tree.update(changes)


def layer(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda tree: tree["layers"]["conv.weight"].update(changes)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (changed(format="rvsm pack"), "its format is not 'rvsm profile'"),
        (changed(version=3), "its version is 3, but this rvsm reads versions 1 and 2"),
        (changed(layers={}), "it has no layers"),
        (changed(layers=[1]), "it has no layers"),
        (changed(batch=0), "batch is missing or damaged: 0"),
        (changed(batch=True), "batch is missing or damaged: True"),
        (changed(threads=10**30), "threads is missing or damaged"),
        (changed(machine="a\x1b[2J"), "machine is missing or damaged: 'a"),
        (changed(inputs=[]), "inputs is missing or damaged"),
        (changed(inputs=[[3, -1]]), "inputs is missing or damaged"),
        (changed(fixed_seconds=float("nan")), "fixed_seconds is missing or damaged: nan"),
        (changed(fixed_seconds=-1), "fixed_seconds is missing or damaged: -1"),
        (layer(shape="8"), "shape of 'conv.weight' is missing or damaged"),
        (layer(groups=None), "groups of 'conv.weight' is missing or damaged"),
        (layer(densities=[0, 0.5]), "densities of 'conv.weight' is missing or damaged"),
        (layer(densities=[0.0, 0.5, 0.5, 1.0]), "densities of 'conv.weight'"),
        (layer(densities=3), "densities of 'conv.weight' is missing or damaged: 3"),
        (layer(seconds=[1.0, 2.0]), "seconds of 'conv.weight'"),
        (layer(seconds=[3.0, 2.0, 4.0]), "seconds of 'conv.weight'"),
        (layer(seconds=[0.0, 1.0, float("inf")]), "seconds of 'conv.weight'"),
        (changed(calls=None), "parts of 'calls' is missing or damaged: None"),
        (changed(calls={"parts": [1.0, 2.0], "seconds": [0.0, 1.0]}), "parts of 'calls' is missing or damaged"),
        (changed(calls={"parts": [0.0, 2.0], "seconds": [1.0, 1.0]}), "seconds of 'calls' is missing or damaged"),
        (lambda tree: tree["layers"].update({"fc.weight": 3}), "shape of 'fc.weight' is missing or damaged: None"),
        (lambda tree: tree["layers"].update({"a\nb": {}}), "the name of a layer is"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Callable[[dict[str, Any]], Any], said: str) -> None:
    file = tmp_path / "profile.json"
    PROFILE.save(file)
    tree = json.loads(file.read_text())
    damage(tree)
    file.write_text(json.dumps(tree))
    with pytest.raises(
        ValueError, match=r"profile\.json is not a profile: .*; write it again with rvsm profile"
    ) as error:
        Profile.load(file)
    assert said.replace("\\\\", "\\").replace("\\\\", "\\") in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\x00", '{"format": "rvsm profile"}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="is not a profile: "):
        Profile.load(file)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist or is not a file; give a profile that rvsm profile wrote"):
        Profile.load(tmp_path)
