"""Commands run in a folder of their own, and what they refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rvsm.cli import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RVSM_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that fails, and return its sentence."""

    def go(*words: str) -> str:
        assert main(words) == 1
        captured = capsys.readouterr()
        assert captured.err.startswith("rvsm: ")
        assert captured.err.count("\n") == 1
        assert "Traceback" not in captured.err
        return captured.err.removeprefix("rvsm: ").strip()

    return go
