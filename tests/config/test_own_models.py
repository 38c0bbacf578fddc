import math
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rvsm.config import Config, as_toml, config_of, described, differences, help_of, read_config
from rvsm.models import NotAllowedError, find_callable

TARGET = ["--budget.sparsity", "0.9"]


def write(folder: Path, text: str, name: str = "experiment.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def refused(*flags: str) -> str:
    with pytest.raises(ValueError, match=r".") as error:
        read_config(flags=list(flags))
    text = str(error.value)
    assert "\n" not in text
    assert "<class" not in text
    return text


def again(config: Config) -> Config:
    """Return the configuration that a run keeps, as the run's owner reads it."""
    return config_of(tomllib.loads(as_toml(config)), allow_import=[config.model.name])


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


class TestOwnModels:
    TEXT = """
from torch import nn

def small(*, channels: int, classes: int, hidden: int = 8, bias: bool = True):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, hidden, bias), nn.Linear(hidden, classes))

def untyped(width=3):
    return nn.Linear(width, width)

number = 3
"""

    def test_its_arguments_are_options(self, elsewhere: Path) -> None:
        write(elsewhere, self.TEXT, "own_model_one.py")
        config = read_config(flags=[*TARGET, "--model.name", "own_model_one:small", "--model.hidden", "16"])
        assert config.model.options == {"hidden": 16, "bias": True}  # channels and classes come from the data
        assert again(config) == config
        assert "--model.hidden" in help_of(["--model.name", "own_model_one:small"])

    def test_arguments_without_types(self, elsewhere: Path) -> None:
        write(elsewhere, self.TEXT, "own_model_two.py")
        config = read_config(flags=[*TARGET, "--model.name", "own_model_two:untyped", "--model.width", "5"])
        assert config.model.options == {"width": 5}

    def test_null_is_told_where_it_would_be_lost(self, elsewhere: Path) -> None:
        write(
            elsewhere,
            "from torch import nn\n\ndef net(depth=3, head=None):\n    return nn.Linear(1, 1)\n",
            "own_null.py",
        )
        name = [*TARGET, "--model.name", "own_null:net"]
        assert "model.depth is null, but the files in which runs keep" in refused(*name, "--model.depth", "null")
        assert read_config(flags=[*name, "--model.head", "null"]).model.options == {"depth": 3, "head": None}

    def test_errors(self, elsewhere: Path) -> None:
        write(elsewhere, self.TEXT, "own_model_three.py")
        name = ["--model.name", "own_model_three:small"]
        assert "did you mean 'model.hidden'?" in refused(*TARGET, *name, "--model.hiden", "3")
        assert refused(*TARGET, *name, "--model.hidden", "x") == "model.hidden must be an integer but is 'x'"
        assert "the callables there are: small, " in refused(*TARGET, "--model.name", "own_model_three:smal")
        assert "is a int" in refused(*TARGET, "--model.name", "own_model_three:number")
        assert "there is no module 'own_model_nowhere'" in refused(*TARGET, "--model.name", "own_model_nowhere:small")
        assert "or your own as module:callable" in refused(*TARGET, "--model.name", "smal")

    def test_a_table_is_described_without_an_import(self, elsewhere: Path) -> None:
        write(elsewhere, self.TEXT, "own_model_four.py")
        config = read_config(flags=[*TARGET, "--model.name", "own_model_four:small", "--model.hidden", "16"])
        del sys.modules["own_model_four"]
        table = tomllib.loads(as_toml(config))
        assert described(table).fingerprint() == config.fingerprint()
        assert not differences(described(table), config)
        with pytest.raises(NotAllowedError, match=r"^run: the model 'own_model_four:small' would be imported"):
            config_of(table, Path("run"))
        assert "own_model_four" not in sys.modules
        assert described(table, allow_import=["own_model_four:small"]) == config
        with pytest.raises(ValueError, match=r"is named as module:callable.* but is 'a b:c'"):
            config_of({**table, "model": {"name": "a b:c"}}, allow_import=["a b:c"])


KINDS = """
from __future__ import annotations

import enum
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from torch import float32, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

class Kind(enum.Enum):
    WIDE = "w"
    DEEP = "d"

def typed(
    kind: Kind = Kind.WIDE,
    path: Path = Path("a"),
    widths: tuple[int, ...] = (8, 16),
    some: set[int] = {1, 2},
    most: float = float("inf"),
    deep: dict[str, float] = {"a": 1.0},
    seen: Sequence[int] = (3,),
):
    return kind, path, widths, some, most, deep, seen

def unknown(rate: float = float("nan")):
    return rate

def untyped(widths=(8, 16), tag="007", most=float("inf")):
    return widths, tag, most

def objects(activation: Callable[..., nn.Module] = nn.ReLU, kind: type[nn.Module] = nn.Linear, number=float32, depth=2):
    return activation, kind, number, depth

def later(activation: Callable[..., nn.Module] | None = None):
    return activation

def called(name="x", depth: int = 2):
    return name, depth

def needed(name, depth: int = 2):
    return name, depth

def more(depth: int = 2, **others):
    return depth, others

class Base:
    def __init__(self, channels: int, hidden: int = 4):
        self.told = channels, hidden

class Derived(Base):
    def __init__(self, depth: int = 2, **others):
        super().__init__(**others)

class Maker:
    def __call__(self, depth: int = 2):
        return depth

    @classmethod
    def method(cls, depth: int = 2):
        return depth

maker = Maker()
part = functools.partial(called, "y", depth=5)
"""


class TestKinds:
    @pytest.fixture(autouse=True)
    def module(self, elsewhere: Path) -> None:
        write(elsewhere, KINDS, "own_kinds.py")

    @staticmethod
    def made(name: str, *flags: str, **told: int) -> Any:
        """Return what the callable gets, after a resume."""
        config = read_config(flags=[*TARGET, "--model.name", f"own_kinds:{name}", *flags])
        assert not differences(again(config), config)
        return find_callable(config.model.name)(**told, **config.model.options)

    def test_types_arrive_as_they_are_declared(self) -> None:
        Kind = find_callable("own_kinds:Kind")
        assert self.made("typed") == (Kind.WIDE, Path("a"), (8, 16), {1, 2}, math.inf, {"a": 1.0}, (3,))
        flags = ["--model.kind=DEEP", "--model.path=b", "--model.widths=[3]", "--model.some=[4]", "--model.most=5"]
        found = self.made("typed", *flags, '--model.deep={"b": 2}', "--model.seen=[4, 5]")
        assert found == (Kind.DEEP, Path("b"), (3,), {4}, 5.0, {"b": 2.0}, [4, 5])

    def test_defaults_without_types_stay_what_they_are(self) -> None:
        assert self.made("untyped") == ((8, 16), "007", math.inf)
        assert math.isnan(self.made("unknown"))

    def test_defaults_that_no_file_can_hold_are_left_to_the_callable(self) -> None:
        assert self.made("objects", "--model.depth", "3") == (nn.ReLU, nn.Linear, torch.float32, 3)
        text = refused(*TARGET, "--model.name", "own_kinds:objects", "--model.kind", "torch.nn.ReLU")
        assert text == "model.kind cannot be set: its default is not a string, number, list or table"

    def test_values_that_no_file_can_hold_are_refused(self) -> None:
        held = "which cannot be stored in the file with the options of a run"
        name = [*TARGET, "--model.name", "own_kinds:later", "--model.activation", "torch.nn.ReLU"]
        assert refused(*name) == "model.activation must be a Python object or null but is 'torch.nn.ReLU'"
        text = refused(*TARGET, '--method.overrides={"0.*": {"groups": null}}')
        assert f"method.overrides holds null, {held}" in text
        text = refused(*TARGET, '--method.overrides={0: {"sparsity": 0.2}}')
        assert f"method.overrides holds the key 0 (not a string), {held}" in text
        assert f"name holds 'caf\\udce9' (not UTF-8), {held}" in refused(*TARGET, "--name", "caf\udce9")
        text = refused(*TARGET, "--data.name", "folder", "--data.path", "/caf\udce9")
        assert f"data.path holds '/caf\\udce9' (not UTF-8), {held}" in text

    def test_callables_of_all_kinds(self) -> None:
        for name in ("maker", "Maker.method"):
            assert self.made(name) == 2
            assert self.made(name, "--model.depth", "3") == 3
        assert self.made("part") == ("y", 5)
        assert self.made("part", "--model.depth", "3") == ("y", 3)

    def test_an_argument_called_name(self) -> None:
        assert self.made("called") == ("x", 2)
        text = refused(*TARGET, "--model.name", "own_kinds:needed")
        assert text == "[model] own_kinds:needed has an argument 'name', but model.name is taken; give it another name"

    def test_arguments_of_any_name(self) -> None:
        assert self.made("more") == (2, {})
        assert self.made("more", "--model.hidden", "3", "--model.widths", "[4]") == (2, {"hidden": 3, "widths": [4]})
        assert "decided by the rest" in refused(*TARGET, "--model.name", "own_kinds:more", "--model.classes", "3")

    def test_first_weights_are_not_an_argument(self, elsewhere: Path) -> None:
        for name in ("more", "typed"):
            config = read_config(flags=[*TARGET, "--model.name", f"own_kinds:{name}", "--model.weights", "a"])
            assert config.weights == str(elsewhere / "a")
            assert "weights" not in config.model.options
            assert again(config) == config

    def test_arguments_that_a_class_hands_on(self) -> None:
        assert self.made("Derived", "--model.hidden", "3", channels=1).told == (1, 3)
        text = refused(*TARGET, "--model.name", "own_kinds:Derived", "--model.hiden", "3")
        assert "did you mean 'model.hidden'?" in text
