import io
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import commands
import processes
from processes import Process, run_together
from rvsm.config import Config, read_config
from rvsm.data import Dataset, Digits
from rvsm.records import Run
from rvsm.train import start

SMALL = ["--model.width", "4", "--training.epochs", "3", "--training.batch", "256"]
TARGET = ["--budget.sparsity", "0.3"]  # with more zeros filters become empty, and counting them costs a second


@pytest.fixture(autouse=True, scope="session")
def server() -> None:
    """Start the server before ``--jobs`` starts one that has imported less."""
    processes.serve()


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


@pytest.fixture
def whole(small: Callable[..., Config], once: Callable[..., Path], digits: Dataset, tmp_path: Path) -> Run:
    """Return the small run, never stopped; the test may change it."""
    kept = once("small-whole", lambda at: start(small(), at / "run", Console(file=io.StringIO()), digits))
    return Run(shutil.copytree(kept / "run", tmp_path / "whole"))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def forks() -> Callable[..., dict[str, Any]]:
    """Return what runs ``rvsm`` in a process of its own, which may be killed, and tells how it ended.

    With ``ranks``, that many processes train together, as torchrun starts them. ``rank`` is the one that differs: it
    alone gets the words ``more``, and dies as `commands.train` says.
    """

    def go(
        words: Sequence[str] = (), *, folder: str = ".", minutes: float = 10, ranks: int | None = None,
        rank: int | None = None, more: Sequence[str] = (), **death: Any,
    ) -> dict[str, Any]:  # fmt: skip
        if ranks is not None:
            special = partial(commands.train, [*words, *more], minutes=minutes, **death)
            others = partial(commands.train, words, minutes=minutes)
            ended = run_together([special if one == rank else others for one in range(ranks)], folder=folder)
            return {"status": [one.status for one in ended], "printed": [one.printed for one in ended]}
        one = Process(partial(commands.train, words, minutes=minutes, **death), folder=folder).ended()
        return {"status": one.status, "printed": one.printed, "killed": one.status == -signal.SIGKILL}

    return go
