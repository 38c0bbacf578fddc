"""Commands run in a folder of their own, and what they refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rvsm.cli import main


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command, which fails, and return its sentence."""

    def go(*words: str) -> str:
        assert main(["sweep", *words]) == 1
        captured = capsys.readouterr()
        assert captured.err.startswith("rvsm: ")
        assert captured.err.count("\n") == 1
        return captured.err.removeprefix("rvsm: ").strip()

    return go
