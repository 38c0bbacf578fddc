import tomllib
from pathlib import Path

import pytest

from rvsm.config import as_toml, config_of, help_of, read_config

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
        assert config_of(tomllib.loads(as_toml(config))) == config
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
        assert refused(*TARGET, *name, "--model.hidden", "x") == "model.hidden must be a whole number but is 'x'"
        assert "callables there are small, " in refused(*TARGET, "--model.name", "own_model_three:smal")
        assert "is a int" in refused(*TARGET, "--model.name", "own_model_three:number")
        assert "there is no module 'own_model_nowhere'" in refused(*TARGET, "--model.name", "own_model_nowhere:small")
        assert "or your own as module:callable" in refused(*TARGET, "--model.name", "smal")
