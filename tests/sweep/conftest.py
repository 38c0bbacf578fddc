"""Commands run in a folder of their own, and what they refuse."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="session")
def sweeper() -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Return what runs several processes of sweeps at once, each forked from one that has imported everything."""
    script = Path(__file__).with_name("processes.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        orders, answers = process.stdin, process.stdout

        def go(**order: Any) -> list[dict[str, Any]]:
            orders.write(json.dumps(order) + "\n")
            orders.flush()
            answer: list[dict[str, Any]] = json.loads(answers.readline())
            return answer

        yield go
        orders.close()
