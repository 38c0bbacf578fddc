"""Entry points of distributions that are really on the path."""

import sys
from pathlib import Path

import pytest

from rvsm.plugins import plugins

ENTRIES = """
[rvsm.tried]
mine = made_plugin:Mine
gone = made_package_that_is_gone.module:Gone
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "made_plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: made-plugin\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "made_plugin.py").write_text("class Mine: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "made_plugin", raising=False)
    return tmp_path


@pytest.mark.usefixtures("distribution")
def test_what_is_announced_is_found_and_what_is_not_there_is_left_out() -> None:
    found = plugins("rvsm.tried")
    assert list(found) == ["mine"]
    assert found["mine"].__module__ == "made_plugin"


def test_a_plugin_that_cannot_be_loaded_says_why(distribution: Path) -> None:
    (distribution / "made_plugin.py").write_text("import a_module_that_is_missing\n")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_missing"):
        plugins("rvsm.tried")


def test_without_any() -> None:
    assert plugins("rvsm.tried") == {}
