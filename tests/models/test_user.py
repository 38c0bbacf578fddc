"""Models of a user's own, from real modules in the working directory."""

import sys
from pathlib import Path

import pytest
from torch import nn

from rvsm.models import find_callable, load_model

MODULE = """
import torch

size = 3

def small(*, width, depth=2):
    import rvsm_user_late
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(depth)])

def text():
    return "no module"

def broken():
    raise KeyError("inside")

class Nets:
    @staticmethod
    def one():
        return torch.nn.Linear(1, 1)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "rvsm_user_nets.py").write_text(MODULE)
    (tmp_path / "rvsm_user_late.py").touch()
    (tmp_path / "rvsm_user_needs.py").write_text("import rvsm_user_not_there")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("rvsm_user"):
            del sys.modules[name]


def test_a_module_in_the_working_directory() -> None:
    assert len(load_model("rvsm_user_nets:small", width=4)) == 2
    assert len(load_model("rvsm_user_nets:small", width=4, depth=5)) == 5
    assert isinstance(load_model("rvsm_user_nets:Nets.one"), nn.Linear)


def test_an_installed_module() -> None:
    assert find_callable("torch.nn:Linear") is nn.Linear


def test_a_package_in_the_working_directory(here: Path) -> None:
    (here / "rvsm_user_package").mkdir()
    (here / "rvsm_user_package" / "nets.py").write_text(MODULE)
    assert isinstance(load_model("rvsm_user_package.nets:Nets.one"), nn.Linear)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rvsm_user_nets", "named as module:callable, .* but is 'rvsm_user_nets'"),
        ("rvsm_user_nets.py:small", "there is no module 'rvsm_user_nets.py'"),
        ("nets/small.py:net", "named as module:callable"),
        (":small", "named as module:callable"),
        ("rvsm_user_nets:", "named as module:callable"),
        ("rvsm_user_nowhere:small", "there is no module 'rvsm_user_nowhere', neither installed nor in "),
        ("rvsm_user_nets:smal", "there is no 'smal'; the callables there are: small, Nets, text, broken"),
        ("rvsm_user_nets:size", "must be a class or a function that creates a model but is a int"),
        ("rvsm_user_nets:size.more", "there is no 'more'"),
        ("rvsm_user_needs:small", "the module 'rvsm_user_needs' needs 'rvsm_user_not_there', which is not installed"),
        ("rvsm_user_nets:text", r"must return a torch\.nn\.Module but returned a str"),
    ],
)
def test_names_that_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_model(name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"missing a required argument: 'width'; it takes \(\*, width, depth=2\)"),
        ({"width": 4, "classes": 10}, "got an unexpected keyword argument 'classes'; it takes"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_model("rvsm_user_nets:small", **arguments)


def test_an_error_of_the_users_own_is_told_with_its_place() -> None:
    message = (
        r"the model 'rvsm_user_nets:broken' cannot be created: KeyError: 'inside' \(.*rvsm_user_nets\.py, line 14\)"
    )
    with pytest.raises(ValueError, match=message) as told:
        load_model("rvsm_user_nets:broken")
    assert isinstance(told.value.__cause__, KeyError)
