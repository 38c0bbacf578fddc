import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rvsm.config import Config, read_config
from rvsm.data import Dataset, Digits
from rvsm.records import Run
from rvsm.train import start

SMALL = ["--model.width", "4", "--training.epochs", "3", "--training.batch", "256"]
TARGET = ["--budget.sparsity", "0.4"]  # with more zeros filters become empty, and counting them costs a second


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return Digits().load()


@pytest.fixture
def small() -> Callable[..., Config]:
    """A configuration that trains in a fifth of a second: three epochs of four steps."""

    def make(*flags: str, target: bool = True) -> Config:
        return read_config(flags=[*SMALL, *(TARGET if target else []), *flags])

    return make


@pytest.fixture
def train(tmp_path: Path, digits: Dataset) -> Callable[[Config], Run]:
    """Train in a new folder, and return the run."""

    def go(config: Config) -> Run:
        folder = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
        start(config, folder, Console(file=io.StringIO()), digits)
        return Run(folder)

    return go


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


class Forks:
    """A process that has imported everything, and forks for each training: so that each may be killed, cheaply."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("forks.py")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}  # as the command sets it
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(self, **order: Any) -> dict[str, Any]:
        """Train as ordered, in a process of its own, and return how it ended and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        answer["killed"] = answer["status"] == -signal.SIGKILL  # with several processes, a list
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()
